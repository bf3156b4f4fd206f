#!/usr/bin/env bash
# Trains on Multi30k from the raw text, from English to German or French, and scores the test sets.
#
#   examples/multi30k/run.sh DATA [LANGUAGE [MODEL]]
#
# DATA is a folder with the task's raw text, gzipped: train, val, test_2016_flickr,
# test_2017_flickr and test_2017_mscoco, each as NAME.en.gz and NAME.LANGUAGE.gz. LANGUAGE is de
# unless given. All of it is lower-cased, as the published metric is, into MODEL-text. Everything is
# chosen on val: how many checkpoints are averaged and the length penalty. The tests are read once,
# at the end.
set -euo pipefail

data=${1:?usage: run.sh DATA [LANGUAGE [MODEL]]}
language=${2:-de}
model=${3:-multi30k-en-$language}
text=$model-text
here=$(dirname "$0")
search=(--beam-size 5 --length-penalty-form power)

# lower FILE NAME: writes the lower-cased text of FILE to TEXT/NAME
lower() {
    gzip -dc "$1" | python -X utf8 -c 'import sys; sys.stdout.writelines(map(str.lower, sys.stdin))' \
        > "$text/$2"
}

# translate NAME PENALTY: writes MODEL/run/NAME.LANGUAGE
translate() {
    dragoman translate "$model" "$text/$1.en" --output "$model/run/$1.$language" \
        "${search[@]}" --length-penalty "$2"
}

# measure NAME METRIC...: scores MODEL/run/NAME.LANGUAGE
measure() {
    dragoman evaluate --hypotheses "$model/run/$1.$language" --reference "$text/$1.$language" \
        --target-language "$language" --metrics "${@:2}" --format json
}

# value: the first score of what measure prints
value() {
    python -c 'import json, sys; print(json.load(sys.stdin)[0]["value"])'
}

mkdir -p "$text"
for name in train val test_2016_flickr test_2017_flickr test_2017_mscoco; do
    for side in en "$language"; do
        lower "$data/$name.$side.gz" "$name.$side"
    done
done

dragoman train "$model" --config "$here/recipe.toml" \
    --source "$text/train.en" --target "$text/train.$language" \
    --valid-source "$text/val.en" --valid-target "$text/val.$language" \
    --source-language en --target-language "$language"

best=-1
for last in 5 10 20; do
    dragoman average "$model" --last "$last"
    for penalty in 1.0 1.1 1.2 1.3 1.4; do
        translate val "$penalty"
        bleu=$(measure val multi-bleu-lc | value)
        echo "val: average of $last, length penalty $penalty: $bleu"
        if python -c "import sys; sys.exit(not $bleu > $best)"; then
            best=$bleu best_last=$last best_penalty=$penalty
        fi
    done
done
echo "chosen on val: average of $best_last, length penalty $best_penalty"

dragoman average "$model" --last "$best_last"
for name in test_2016_flickr test_2017_flickr test_2017_mscoco; do
    translate "$name" "$best_penalty"
    echo "$name"
    measure "$name" multi-bleu-lc bleu chrf
done

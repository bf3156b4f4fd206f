#!/usr/bin/env bash
# Trains and scores one of the paper's four models.
#
#   examples/wmt14/run.sh de|fr base|big DATA MODEL [OPTION...]
#
# DATA is what data.sh makes, or any text laid out like it. The options are those of `dragoman
# train` and come last, so that they beat the recipe. The same command again goes on where the
# training stopped.
set -euo pipefail

usage="usage: run.sh de|fr base|big DATA MODEL [OPTION...]"
target=${1:?$usage}
size=${2:?$usage}
data=${3:?$usage}
model=${4:?$usage}
here=$(dirname "$0")

refuse() {
    echo "error: $1" >&2
    exit 2
}
case $target in
de) language=deu ;;
fr) language=fra ;;
*) refuse "the target is $target, accepted is de or fr" ;;
esac
case $size in
base) last=5 ;;
big) last=20 ;;
*) refuse "the size is $size, accepted is base or big" ;;
esac

dragoman train "$model" --resume --preset "paper-$size" --config "$here/en-$target.toml" \
    --source "$data"/train-parts/*.eng.gz --target "$data"/train-parts/*."$language".gz \
    --valid-source "$data/valid.en" --valid-target "$data/valid.$target" "${@:5}"
kept=$(find "$model/run/checkpoints" -name 'step-*' 2>/dev/null | wc -l || true)
if ((kept && kept < last)); then  # a run that --max-hours has ended early
    last=$kept
fi
dragoman average "$model" --last "$last"

for name in valid test; do
    echo "$name"
    dragoman translate "$model" "$data/$name.en" --output "$model/run/$name.$target" \
        --beam-size 4 --length-penalty 0.6
    dragoman evaluate --hypotheses "$model/run/$name.$target" \
        --reference "$data/$name.$target" --target-language "$target" --metrics paper bleu chrf
done

#!/usr/bin/env bash
# Fetches the text of one of the paper's two tasks. Needs a network and the package mtdata.
#
#   examples/wmt14/data.sh de|fr DATA
#
# Afterwards DATA has the training text, train-parts/*.eng.gz beside *.deu.gz (or *.fra.gz), and
# newstest2013 as valid.en and valid.de (or .fr), and the full newstest2014, 3,003 lines, as test.
set -euo pipefail

target=${1:?usage: data.sh de|fr DATA}
data=${2:?usage: data.sh de|fr DATA}
case $target in
de)
    language=deu
    parts=(
        Statmt-europarl_wmt13-7-deu-eng
        Statmt-commoncrawl_wmt13-1-deu-eng
        OPUS-news_commentary-v9.1-deu-eng
    )
    ;;
fr)
    language=fra
    parts=(
        Statmt-europarl_wmt13-7-fra-eng
        Statmt-commoncrawl_wmt13-1-fra-eng
        OPUS-news_commentary-v9.1-eng-fra
        OPUS-multiun-v1-eng-fra
        OPUS-giga_fren-v2-eng-fra
    )
    ;;
*)
    echo "error: the target is $target, accepted is de or fr" >&2
    exit 2
    ;;
esac

mtdata get --langs "eng-$language" --train "${parts[@]}" --compress --out "$data"

# fetch TEST NAME: writes both sides of a test set that sacreBLEU knows
fetch() {
    sacrebleu -t "$1" -l "en-$target" --echo src >"$data/$2.en"
    sacrebleu -t "$1" -l "en-$target" --echo ref >"$data/$2.$target"
}
fetch wmt13 valid
fetch wmt14/full test

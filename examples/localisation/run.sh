#!/usr/bin/env bash
# Trains on the texts of software for an hour, and says what a user would ask first: how good the
# translations are, and whether the placeholders in them are still what the program expects.
#
#   examples/localisation/run.sh DATA LANGUAGE [MODEL]
#
# DATA is a folder with train.en.gz, dev.en.gz and the same in LANGUAGE, such as de or zh_CN.
set -euo pipefail

data=${1:?usage: run.sh DATA LANGUAGE [MODEL]}
language=${2:?usage: run.sh DATA LANGUAGE [MODEL]}
model=${3:-localisation-en-$language}
here=$(dirname "$0")

dragoman train "$model" --preset small --max-hours 1 \
    --source "$data/train.en.gz" --target "$data/train.$language.gz" \
    --valid-source "$data/dev.en.gz" --valid-target "$data/dev.$language.gz" \
    --source-language en --target-language "${language%%_*}"

for side in en "$language"; do
    gzip -dc "$data/dev.$side.gz" > "$model/run/dev.$side"
done
dragoman translate "$model" "$model/run/dev.en" --output "$model/run/dev.translated"
dragoman evaluate --hypotheses "$model/run/dev.translated" --reference "$model/run/dev.$language" \
    --target-language "${language%%_*}"
python "$here/placeholders.py" "$model/run/dev.en" "$model/run/dev.translated"

#!/usr/bin/env bash
# bash benchmarks/uses/uses_gpu.sh: the trainings of stories.py, series.py, images.py and captions.py side by side on one GPU, from
# the root of the repository. What the table needs comes first; peers begin as trainings end.
# DATA: folder with ett/ and fashion-mnist/ (default data). OUT: folder of uses.jsonl and uses.txt (default runs).
# LIMIT: seconds (default 520); trainings end TEST seconds before it (default 60) and are tested as far as they came.
# JOBS: trainings at a time (default 16). ONLY, EXCEPT: extended regular expressions of the jobs' names.
# SMALL=1: a few steps of each, one after another, also on a CPU.
set -u
ROOT=$PWD; DATA=${DATA:-data}; OUT=${OUT:-runs}; LIMIT=${LIMIT:-520}; TEST=${TEST:-60}; SMALL=${SMALL:-0}
JOBS=${JOBS:-16}; ONLY=${ONLY:-.}; EXCEPT=${EXCEPT:-none}
[ -f regard/version.py ] || { echo "run this from the root of the repository"; exit 2; }
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${THREADS:-1} MPLBACKEND=Agg
W=$(mktemp -d); mkdir -p "$OUT"; LINES=$OUT/uses.jsonl; LOG=$OUT/uses.txt; QUICK=(); TINY=(); DEVICE=cuda; RUNNING=()
UNTIL=$(($(date +%s) + LIMIT - TEST))
if [ "$SMALL" = 1 ]; then
  QUICK=(--quick); DEVICE=cpu
  for setting in data.demo=300 data.validation=40 training.steps=4 training.validate_every=4 training.warmup=1 \
    model.layers=1 model.decoder_layers=1 model.dim=32 model.heads=2 model.hidden=32 decoding.sentences=20; do TINY+=(--set "$setting"); done
  TINY+=(--samples 20 --pointed 10)
fi
# Several trainings at a time share the GPU better through NVIDIA's multi-process service, where there is one.
service=
if [ "$SMALL" = 0 ] && [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && command -v nvidia-cuda-mps-control >/dev/null; then
  export CUDA_MPS_PIPE_DIRECTORY=$W/mps CUDA_MPS_LOG_DIRECTORY=$W/mps-log; mkdir -p "$W/mps" "$W/mps-log"
  nvidia-cuda-mps-control -d >/dev/null 2>&1; service=yes
  if ! timeout 40 python -c 'import torch; torch.ones(8, device="cuda").sum().item()' >/dev/null 2>&1; then
    echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1; service=no; unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  fi
fi
echo "[${SECONDS}s] multi-process service: ${service:-as it was}" | tee "$W/service.log"
DATA=$(cd "$DATA" && pwd)
if compgen -G "$DATA/fashion-mnist/*.xz" >/dev/null; then  # images packed smaller: unpacked beside links to the rest
  mkdir -p "$W/data/fashion-mnist"; [ -d "$DATA/ett" ] && ln -s "$DATA/ett" "$W/data/ett"; cp "$DATA"/fashion-mnist/*.gz "$W/data/fashion-mnist/"
  for file in "$DATA"/fashion-mnist/*.xz; do
    python -c 'import gzip, lzma, sys; open(sys.argv[2], "wb").write(gzip.compress(lzma.open(sys.argv[1]).read(), 1))' \
      "$file" "$W/data/fashion-mnist/$(basename "${file%.xz}").gz"
  done
  DATA=$W/data
fi
bundle() { { cat "$W"/*.jsonl; for file in "$W"/*.json; do tr -d '\n' <"$file"; echo; done; } >"$LINES.new" 2>/dev/null; mv "$LINES.new" "$LINES"
  for file in "$W"/*.log; do echo "== $(basename "$file")"; grep -v '^{"' "$file" | tail -n 60 | cut -c1-240; done >"$LOG.new" 2>/dev/null; mv "$LOG.new" "$LOG"; }
# job NAME COMMAND…: in the background as soon as fewer than JOBS run, stopped when the time is over
job() { local name=$1; shift; [[ $name =~ $ONLY && ! $name =~ $EXCEPT ]] || return 0
  while [ "$(jobs -rp | wc -l)" -gt "$JOBS" ]; do sleep 0.5; done  # one more than JOBS: the keeper below
  if [ $((LIMIT - TEST - SECONDS)) -lt 45 ]; then echo "[${SECONDS}s] $name: not started, no time left" | tee "$W/$name.log"; return 0; fi
  ( timeout -k 5 $((LIMIT - SECONDS)) "$@" >"$W/$name.log" 2>&1; echo "[${SECONDS}s] $name: rc $?" | tee -a "$W/$name.log" ) &
  RUNNING+=($!); [ "$SMALL" = 1 ] && wait $!; return 0; }
# stories NAME TASK OPTIONS…; words with = are settings
stories() { local name=$1 task=$2 word; shift 2; local words=()
  for word in "$@"; do case $word in *=*) words+=(--set "$word");; *) words+=("$word");; esac; done
  job "$name" python benchmarks/uses/stories.py --task "$task" --name "$name" --device $DEVICE --verbose --until "$UNTIL" \
    --out "$W/$name.jsonl" "${words[@]}" "${TINY[@]}"; }
series() { local name=$1; shift; job "$name" python benchmarks/uses/series.py --data "$DATA" "${QUICK[@]}" --out "$W/$name.json" "$@"; }
pictures() { local name=$1 script=$2; shift 2
  job "$name" python "benchmarks/uses/$script.py" --data "$DATA" --verbose --until "$UNTIL" "${QUICK[@]}" --out "$W/$name.json" "$@"; }
( while sleep 10; do bundle; done ) & keeper=$!

judged=(--parts test combinations longer --system pointer-generator)
captured=(training.capture=true training.kernels=auto)
demo=("${captured[@]}" data.demo=120000 training.batch_tokens=4096 training.lr=2e-3 training.warmup=1275 training.steps=15300)
wide=("${captured[@]}" data.demo=200000 training.batch_tokens=8192 training.lr=1e-3 training.warmup=833 training.steps=10000
  model.layers=3 model.decoder_layers=2 model.dim=128 model.heads=4 model.hidden=512)
summaries=(data.demo=50000 training.batch_tokens=8192 training.steps=2000 training.lr=1e-3
  model.layers=3 model.decoder_layers=2 model.dim=128 model.heads=8 model.hidden=512)
scenes=(training.steps=3000 training.warmup=300 training.validate_every=500)

for seed in 1 2 3; do stories answers-wide-$seed answers "${judged[@]}" "${wide[@]}" --seed $seed; done
pictures captions-video-1 captions --tasks video --systems captioner --seeds 1
pictures captions-video-2 captions --tasks video --systems captioner --seeds 2
for seed in 1 2 3; do
  pictures vit-$seed images --seeds $seed --systems regard
  pictures cnn-$seed images --seeds $seed --systems cnn
done
for data in etth1 etth2; do
  series forecaster-$data --datasets $data --seeds 1 2 3 --models forecaster
  series patchtst-$data --datasets $data --seeds 1 2 3 --models patchtst --set model.lookback=512 --minutes 2
done
pictures captions-images-1 captions --tasks images --systems captioner --seeds 1 --set "${scenes[@]}"
for seed in 1 2; do stories answers-$seed answers "${judged[@]}" "${demo[@]}" --seed $seed; done
stories answers-t5 answers --parts test combinations longer --seed 1 --system t5 --rates 0.33 "${demo[@]}"
stories answers-transformer answers --parts test combinations longer --seed 1 --system transformer "${demo[@]}"
series dlinear --seeds 1 2 3 --models dlinear
stories summaries-t5 summaries "${summaries[@]}" --parts test combinations longer --seed 1 --system t5 --rates 1
stories summaries-transformer summaries "${summaries[@]}" --parts test combinations longer --seed 1 --system transformer
pictures captions-video-peer captions --tasks video --systems peer --seeds 1 --set training.steps=3000
pictures captions-images-peer captions --tasks images --systems peer --seeds 1
[ ${#RUNNING[@]} -gt 0 ] && wait "${RUNNING[@]}"; kill "$keeper" 2>/dev/null; bundle
[ "$service" = yes ] && echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
echo "[${SECONDS}s] done: $(wc -l <"$LINES") results in $LINES"; rm -rf "$W"

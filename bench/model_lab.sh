#!/usr/bin/env bash
# model_lab.sh BUILD_DIRECTORY [SECONDS] - steps of four ranks measured in a lab, beside predictions: the
# first table of bench/results/prediction.md. Two strategies decide the figures of a link; the others are predicted with them. Runs
# that BUILD_DIRECTORY/model already holds are not repeated, and after SECONDS no other is begun, so it can be stopped
# and started again. The whole takes about 35 minutes; root, for the lab.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=$(cd "${1:?usage: model_lab.sh BUILD_DIRECTORY [SECONDS]}" && pwd) || exit 2
seconds=${2:-100000} gradwire=$build/gradwire kept=$build/model
rates=(100mbit 1gbit) profiles=(resnet50 vgg16 gnmt)
fitted='schedule=(fifo|tictac) ' # of these, with arch=ring and all defaults, latency and rate
# Strategies of one job: the compared schedules, the other axes, and the ranks of a host if not one. @ is a tenth of all
# gradients.
jobs=('fifo,wfbp:fuse=@,mgwfbp,p3,bytescheduler:slice=100K,credit=@,tictac,dear:fuse=@|arch=ring transport=tcp'
    'wfbp:fuse=@|arch=halving transport=tcp' 'wfbp:fuse=@|arch=tree transport=tcp' 'wfbp:fuse=@|arch=ps transport=tcp'
    'wfbp:fuse=@|arch=ring transport=zmq'
    'wfbp:fuse=@|arch=ring sync=delayed:warmup=0 transport=tcp'
    'wfbp:fuse=@|arch=ring sync=periodic:every=2 transport=tcp'
    'wfbp:fuse=@|arch=ring compress=fp16 transport=tcp' 'wfbp:fuse=@|arch=ring compress=onebit transport=tcp'
    'wfbp:fuse=@|arch=ring compress=topk:ratio=0.01 transport=tcp'
    'p3,dear:fuse=@|arch=ring compress=int8 transport=tcp'
    'wfbp:fuse=@,dear:fuse=@|arch=hierarchical|2' 'wfbp:fuse=@,p3|arch=hierarchical compress=int8|2'
    'wfbp:fuse=@|arch=ps compress=int8 transport=tcp' 'wfbp:fuse=@|arch=ps sync=asp transport=tcp'
    'wfbp:fuse=@|arch=ps sync=ssp:staleness=1 transport=tcp' 'wfbp:fuse=@|arch=sfb transport=tcp')

bytes_of() { if [ "$1" = 1gbit ]; then echo 20000000; else echo 2000000; fi; } # RATE

# The recorded profile with gradients that take 0.25 s on this wire and as much computing. Fully connected layers are
# square, as far as that goes.
scale() { # PROFILE RATE
    awk -F, -v OFS=, -v want="$(bytes_of "$2")" -v us=250000 '
        NR == FNR { if ($3 ~ /^[0-9]+$/) { bytes += $3; time += $4 + $5 } next }
        $1 == "layer" { print $0 ",rows"; next }
        /^#/ { sub(/batch [0-9]+/, "batch 4") } # these two cores multiply the factors of four ranks
        $3 !~ /^[0-9]+$/ { print; next }
        { size = int($3 * want / bytes / 4) * 4
          $6 = $2 == "Linear" ? int(sqrt(size / 4)) : 0
          if ($6) size = int(size / 4 / $6) * $6 * 4
          $3 = $3 > 0 && size == 0 ? 4 : size
          $4 = sprintf("%.1f", $4 * us / time); $5 = sprintf("%.1f", $5 * us / time); print }' \
        "bench/profiles/$1.csv" "bench/profiles/$1.csv"
}

measure() { # PROFILE RATE JOB
    local file=$kept/$1-$2.csv figure=step_ms steps=8 schedules strategy per_host out
    IFS='|' read -r schedules strategy per_host <<<"$3"
    per_host=${per_host:-1}
    [[ $3 == *periodic* ]] && figure=mean_ms # steps with and without an exchange
    [[ $3 == *arch=ps* ]] && steps=24        # which vary by a fifth
    out=$("$gradwire" bench step --model "$file" -n 4 --lab "hosts=$((4 / per_host)),rate=$2" --strategy "$strategy" \
        --schedule "${schedules//@/$(($(bytes_of "$2") / 10))}" --steps $steps --json) || { echo "$1 $2 $3: failed" >&2; return 1; }
    sed -E "s,.*\"strategy\": \"([^\"]*)\".*\"$figure\": ([0-9.]+).*,$file;4;$per_host;\2;\1," <<<"$out" | tr ';' ',' \
        >>"$kept/measured-$2.csv"
    echo "$1 $2 $3" >>"$kept/done"
}

mkdir -p "$kept"
touch "$kept/done"
for rate in "${rates[@]}"; do
    [ -e "$kept/measured-$rate.csv" ] || echo profile,ranks,per_host,step_ms,strategy >"$kept/measured-$rate.csv"
    for profile in "${profiles[@]}"; do
        scale "$profile" "$rate" >"$kept/$profile-$rate.csv"
        for job in "${jobs[@]}"; do
            grep -qxF "$profile $rate $job" "$kept/done" && continue
            [ "$SECONDS" -lt "$seconds" ] || { echo "stopped; the next call goes on" >&2; exit 1; }
            measure "$profile" "$rate" "$job" || exit 1
        done
    done
done

# Facts of the lab: its shapers are token buckets (src/lab/namespace_hosts.c), TCP keeps some 50 kB in their queues, and the
# kernel has taken so much of a busy connection: the median of Send-Q in `ss -t` in its namespaces while servers are
# pushed to, 2026-11-18.
start() { # RATE
    if [ "$1" = 1gbit ]; then set -- 1.19e8 125000 190000; else set -- 1.19e7 81920 110000; fi
    printf 'gradwire-machines 1\nlatency 1e-4\nrate %s\nburst %s\nqueue 50000\nahead %s\nend\n' "$1" "$2" "$3"
}

for rate in "${rates[@]}"; do
    start "$rate" >"$kept/start.model"
    awk -v fitted="$fitted" 'NR == 1 || $0 ~ fitted' "$kept/measured-$rate.csv" >"$kept/fitted.csv"
    "$gradwire" fit --from "$kept/start.model" --steps "$kept/fitted.csv" --move latency,rate -o "$kept/$rate.model" |
        sed -n "s/^latency/$rate: latency/p" >&2
    "$gradwire" fit --from "$kept/$rate.model" --steps "$kept/measured-$rate.csv" --move none -o "$kept/none.model" |
        awk -v rate="$rate" -v fitted="$fitted" '$3 ~ /^[+-]/ {
            line = $7; for (i = 8; i <= NF; i++) line = line " " $i
            print rate ";" $6 ";" $1 ";" $2 ";" (line ~ fitted) ";" line }'
done | awk -F';' -v profiles="${profiles[*]}" -v rates="${rates[*]}" '
    function median(list, n,   i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j] < list[j - 1]; j--) {
            t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2 }
    { line = $6
      gsub(/ ?(sync=bsp|compress=none|transport=(tcp|auto))/, "", line)
      sub(/fuse=[0-9]+/, "fuse=10%", line); sub(/credit=[0-9]+/, "credit=10%", line)
      if (!(line in seen)) order[++rows] = line
      seen[line] = $5 ? " (fitted)" : ""
      error = 100 * ($4 / $3 - 1)
      cell[line, $1, $2] = sprintf("%.0f, %+.1f %%", $3, error)
      if (!$5) { size = error < 0 ? -error : error; all[++count] = size
          if (size > worst) { worst = size; where = line ", " $2 ", " $1 } } }
    END {
      split(profiles, profile, " "); split(rates, rate, " ")
      head = "| strategy |"; rule = "|---|"
      for (r = 1; r in rate; r++) for (p = 1; p in profile; p++) {
          head = head " " profile[p] ", " rate[r] " |"; rule = rule "---|" }
      print head "\n" rule
      for (i = 1; i <= rows; i++) {
          row = "| " order[i] seen[order[i]] " |"
          for (r = 1; r in rate; r++) for (p = 1; p in profile; p++) row = row " " cell[order[i], rate[r], profile[p]] " |"
          print row }
      printf "\n%d predictions: median error %.1f %%, worst %.1f %% (%s)\n", count, median(all, count), worst, where }'

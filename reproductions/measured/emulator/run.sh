#!/bin/sh
# run.sh MEMBERS DELAY_MS GBIT_PER_S OPERATIONS MEGABYTES REPETITIONS: time Gloo's operations over the switch (as root, with torch).
# Example: run.sh 4 10 1 allreduce,broadcast 32,64 2 >> gloo.csv
cd "$(dirname "$0")" || exit 1
[ -x switch ] || gcc -O2 -o switch switch.c || exit 1
members=$1; last=$(($1 - 1))
for member in $(seq 0 $last); do ip netns add "w$member" 2>/dev/null; done
./switch "$members" "$(awk "BEGIN{print $2 * 1000}")" "$(awk "BEGIN{print $3 * 1000}")" 1000 &
switch=$!
sleep 0.5
kill -0 $switch || exit 1
for member in $(seq 0 $last); do
    ip netns exec "w$member" ip link set lo up
    ip netns exec "w$member" ip addr add "10.0.0.$((member + 1))/24" dev eth0
    ip netns exec "w$member" ip link set eth0 mtu 9001 txqueuelen 4000 up
done
for member in $(seq 1 $last); do
    ip netns exec "w$member" python3 gloo_times.py "$member" "$@" >/dev/null 2>&1 &
done
ip netns exec w0 python3 gloo_times.py 0 "$@" 2>/dev/null
kill $switch
wait

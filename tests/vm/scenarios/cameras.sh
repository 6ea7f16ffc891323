# Two cameras of the kernel for $1 seconds: what they delivered is looked at on the host.
seconds=$1
mien run --config /vm/mien.toml >/mnt/share/daemon.log 2>&1 & daemon=$!
n=0; until mien status --json >/mnt/share/status.json 2>/dev/null && ! grep -q '"state": "starting"' /mnt/share/status.json; do
  n=$((n+1)); [ $n -lt 300 ] || { cat /mnt/share/daemon.log; exit 20; }; sleep 0.2
done
mien camera list; mien camera list --json >/mnt/share/cameras.json
end=$(( $(cut -d. -f1 /proc/uptime) + seconds ))
while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
  sleep 5
  mien status --json >/tmp/status.json || exit 21
  worker=$(grep -o '"pid": [0-9]*' /tmp/status.json | cut -d' ' -f2 | sort -u | grep -v "^$daemon$")
  fds=$(for p in $daemon $worker; do ls /proc/$p/fd | wc -l; done | tr '\n' ' ')
  rss=$(for p in $daemon $worker; do grep VmRSS /proc/$p/status | tr -dc '0-9'; echo; done | tr '\n' ' ')
  echo "sample fds $fds rss $rss"
  cp /tmp/status.json "/mnt/share/status-$(printf %06d $(cut -d. -f1 /proc/uptime)).json"
done
mien health; echo "health $?"
ss -ltn 2>/dev/null || netstat -ltn
kill -TERM $daemon; wait $daemon; rc=$?
echo "daemon $rc"
for f in /vm/rec0/*.mp4 /vm/rec1/*.mp4; do mien verify "$f" >/dev/null || { echo "not whole: $f"; rc=22; }; done
cp -r /vm/rec0 /vm/rec1 /mnt/share/
mien audit verify || rc=23
exit $rc

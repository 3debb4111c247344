#!/bin/bash
# loopback.sh FOLDER: start etcd and two PostgreSQL under Patroni on 127.0.0.1, as root on Debian 12, for tests.
#
#   apt-get install patroni etcd-server postgresql-15
#   deploy/patroni/loopback.sh /tmp/patroni     # prints the URL for Rainbow once there is a leader and a standby
#   deploy/patroni/loopback.sh /tmp/patroni stop
#
# FOLDER gets configuration, data, logs and process ids. PORT (default 15430) is the first of seven ports that are used.
set -euo pipefail

folder=${1:?usage: loopback.sh FOLDER [stop]}
port=${PORT:-15430}
etcd=$((port + 4)) peer=$((port + 5))

stop() {
    local file
    for file in "$folder"/*.pid; do
        [ -e "$file" ] || continue
        kill "$(cat "$file")" 2>/dev/null || true
    done
    for file in "$folder"/*.pid; do
        [ -e "$file" ] || continue
        tail --pid="$(cat "$file")" -f /dev/null 2>/dev/null || true
        rm -f "$file"
    done
}

if [ "${2:-}" = stop ]; then
    stop
    exit
fi

for file in "$folder"/*.pid; do
    if [ -e "$file" ] && kill -0 "$(cat "$file")" 2>/dev/null; then
        echo "it runs already in $folder; stop it first: loopback.sh $folder stop" >&2
        exit 1
    fi
done
[ "$(id -u)" = 0 ] || { echo "loopback.sh must run as root: it starts PostgreSQL as the user postgres" >&2; exit 1; }
for program in etcd patroni runuser; do
    command -v $program >/dev/null || { echo "$program is not installed: apt-get install patroni etcd-server" >&2; exit 1; }
done
binaries=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)

mkdir -p "$folder"
chmod 755 "$folder"
cd "$folder"
install -d -o postgres -m 700 etcd db1 db2 passwords
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
[ -e passwords/rainbow ] || (umask 077; echo "$password" > passwords/rainbow)
password=$(cat passwords/rainbow)

as_postgres() { # NAME COMMAND...: in the background, its log and process id beside the data
    local name=$1
    shift
    setsid setpriv --reuid=postgres --regid=postgres --init-groups env -i PATH="$binaries:$PATH" HOME="$folder" LANG=C.UTF-8 "$@" \
        >>"$folder/$name.log" 2>&1 </dev/null &
    echo $! >"$folder/$name.pid"
}

as_postgres etcd etcd --name loopback --data-dir "$folder/etcd" --enable-v2=true \
    --listen-client-urls http://127.0.0.1:$etcd --advertise-client-urls http://127.0.0.1:$etcd \
    --listen-peer-urls http://127.0.0.1:$peer --initial-advertise-peer-urls http://127.0.0.1:$peer \
    --initial-cluster loopback=http://127.0.0.1:$peer

for number in 1 2; do
    name=db$number
    (umask 077; cat >$name.yml) <<YAML
scope: rainbow
name: $name
restapi: {listen: "127.0.0.1:$((port + 1 + number))", connect_address: "127.0.0.1:$((port + 1 + number))"}
etcd3: {host: "127.0.0.1:$etcd"}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 3
    retry_timeout: 5
    synchronous_mode: ${SYNCHRONOUS:-true}
    postgresql: {use_pg_rewind: true, parameters: {max_connections: 200}}
  initdb: [{encoding: UTF8}, {locale: C.UTF-8}, data-checksums]
postgresql:
  listen: "127.0.0.1:$((port + number - 1))"
  connect_address: "127.0.0.1:$((port + number - 1))"
  data_dir: "$folder/$name/data"
  bin_dir: "$binaries"
  pgpass: "$folder/$name/pgpass"
  parameters: {unix_socket_directories: "$folder/$name"}
  pg_hba: ["local all all peer", "host all all 127.0.0.1/32 scram-sha-256", "host replication all 127.0.0.1/32 scram-sha-256"]
  authentication:
    superuser: {username: postgres, password: "$password"}
    replication: {username: replicator, password: "$password"}
    rewind: {username: rewinder, password: "$password"}
YAML
    chown postgres $name.yml
    as_postgres $name patroni "$folder/$name.yml"
done

states=sync
[ "${SYNCHRONOUS:-true}" = true ] || states=sync,async
url="postgresql://postgres:$password@127.0.0.1:$port,127.0.0.1:$((port + 1))"
ask() { "$binaries/psql" -XAtq "$url/$1?target_session_attrs=read-write&connect_timeout=2" -c "$2" 2>/dev/null; }
for ((second = 0; second < ${SECONDS_TO_START:-90}; second++)); do
    if [ "$(ask postgres "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = ANY('{$states}')")" = 1 ]; then
        [ "$(ask postgres "SELECT 1 FROM pg_database WHERE datname = 'rainbow'")" = 1 ] || ask postgres "CREATE DATABASE rainbow"
        echo "$url/rainbow?target_session_attrs=read-write"
        exit
    fi
    sleep 1
done
echo "no leader with a standby within ${SECONDS_TO_START:-90} s; see $folder/*.log" >&2
stop
exit 1

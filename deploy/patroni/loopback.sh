#!/bin/bash
# loopback.sh FOLDER [start|crash|stop]: etcd and two PostgreSQL under Patroni on 127.0.0.1, as root on Debian 12, for tests.
#
#   apt-get install patroni etcd-server postgresql-15
#   deploy/patroni/loopback.sh /tmp/patroni           # starts what does not run; prints the URL once a leader has a standby
#   deploy/patroni/loopback.sh /tmp/patroni crash     # kills the leader and its Patroni by -9; prints its name
#   deploy/patroni/loopback.sh /tmp/patroni stop
#
# FOLDER gets configuration, data, logs and process ids. PORT (default 15430) is the first of six ports that are used.
set -euo pipefail

folder=${1:?usage: loopback.sh FOLDER [start|crash|stop]}
port=${PORT:-15430}
both=$port,$((port + 1)) etcd=$((port + 4)) peer=$((port + 5))

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

runs() { [ -e "$folder/$1.pid" ] && kill -0 "$(cat "$folder/$1.pid")" 2>/dev/null; }

[ "$(id -u)" = 0 ] || { echo "loopback.sh must run as root: it starts PostgreSQL as the user postgres" >&2; exit 1; }
for program in etcd patroni setpriv; do
    command -v $program >/dev/null || { echo "$program is not installed: apt-get install patroni etcd-server" >&2; exit 1; }
done
binaries=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)

crash() { # as a machine that loses its power: nothing is flushed, nobody is told
    local name postgres
    for number in 1 2; do
        name=db$number
        postgres=$(head -1 "$folder/$name/data/postmaster.pid" 2>/dev/null) || continue
        [ "$(ask "$((port + number - 1))" postgres "SELECT pg_is_in_recovery()")" = f ] || continue
        kill -9 "$(cat "$folder/$name.pid")" "$postgres" $(pgrep -P "$postgres")
        rm "$folder/$name.pid"
        echo $name
        return
    done
    echo "no leader runs in $folder" >&2
    return 1
}

ask() { # PORTS DATABASE STATEMENT
    local hosts=127.0.0.1:${1/,/,127.0.0.1:}
    "$binaries/psql" -XAtq "postgresql://postgres:$(cat "$folder/passwords/rainbow")@$hosts/$2?target_session_attrs=read-write&connect_timeout=2" -c "$3" 2>/dev/null
}

case ${2:-start} in
    start) ;;
    crash) crash; exit ;;
    stop) stop; exit ;;
    *) echo "usage: loopback.sh FOLDER [start|crash|stop]" >&2; exit 2 ;;
esac

mkdir -p "$folder"
chmod 755 "$folder"
cd "$folder"
install -d -o postgres -m 700 etcd db1 db2 passwords
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
[ -e passwords/rainbow ] || (umask 077; echo "$password" > passwords/rainbow)
password=$(cat passwords/rainbow)

as_postgres() { # NAME COMMAND...: in the background unless it runs, its log and process id beside the data
    local name=$1
    shift
    ! runs "$name" || return 0
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
for ((second = 0; second < ${SECONDS_TO_START:-90}; second++)); do
    if [ "$(ask "$both" postgres "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = ANY('{$states}')")" = 1 ]; then
        [ "$(ask "$both" postgres "SELECT 1 FROM pg_database WHERE datname = 'rainbow'")" = 1 ] || ask "$both" postgres "CREATE DATABASE rainbow"
        echo "postgresql://postgres:$password@127.0.0.1:$port,127.0.0.1:$((port + 1))/rainbow?target_session_attrs=read-write"
        exit
    fi
    sleep 1
done
echo "no leader with a standby within ${SECONDS_TO_START:-90} s; see $folder/*.log" >&2
exit 1

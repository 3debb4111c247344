"""One of Slurm's commands over Rainbow: its words go to the server, and the answer is printed.

`rainbow slurm-shims` writes this file, and links to it that are named as the commands; a link's name says which one
it is. It needs Python 3.6 and nothing of Rainbow. Steps of a job (srun) are started here.
"""

import os
import sys

TYPE_CHECKING = False  # importing typing takes longer than all the rest
if TYPE_CHECKING:
    import re
    from typing import Any

URL = ""  # written by rainbow slurm-shims
CREDENTIALS = ""
RETRY = 30.0  # seconds that sbatch asks again where the server is away
READ = ("SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_", "SLURM_JOB_NODELIST", "SLURM_CLUSTERS")
AWAY = "error: Unable to contact slurm controller (connect failure)"


def credentials() -> "tuple[str, str]":
    """Return the server's URL and what goes into the header: every token that is known."""
    own, url, token = os.environ, os.environ.get("RAINBOW_URL") or URL, os.environ.get("RAINBOW_TOKEN", "")
    if not token and own.get("RAINBOW_TOKEN_FILE"):
        with open(own["RAINBOW_TOKEN_FILE"]) as file:
            token = file.read()
    if not (url and token):
        import json

        home = own.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
        path = own.get("RAINBOW_CREDENTIALS") or CREDENTIALS or os.path.join(home, "rainbow", "credentials.json")
        try:
            with open(path) as file:
                saved = json.load(file)
        except (OSError, ValueError):
            saved = {}
        url = url or saved.get("url") or "http://127.0.0.1:8080"
        token = token or ",".join(one["token"] for one in saved.get("clusters", {}).values() if one.get("token"))
    words = token.replace("Bearer ", " ").replace(",", " ").split()
    return url, ", ".join("Bearer " + word for word in words)


def ask(name: str, url: str, header: str, body: "dict[str, Any]") -> "tuple[int, Any]":
    """Send a call; return the status and the answer. OSError or ValueError if there is none."""
    import json
    import socket

    scheme, _, rest = url.partition("://")
    host, _, folder = rest.partition("/")
    host, _, port = host.rpartition(":") if host.rpartition(":")[2].isdigit() else (host, "", "")
    data = json.dumps(body).encode()
    at = host.strip("[]")
    path = "/".join(filter(None, [folder.strip("/"), "v1/slurm/" + name]))
    head = f"POST /{path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: {header}\r\nContent-Type: application/json\r\n"
    link = socket.create_connection((at, int(port or (443 if scheme == "https" else 80))), 60)
    try:
        if scheme == "https":
            import ssl

            context = ssl.create_default_context()
            link = context.wrap_socket(link, server_hostname=at)
        link.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        parts = []
        while True:
            part = link.recv(65536)
            if not part:
                break
            parts.append(part)
    finally:
        link.close()
    top, _, text = b"".join(parts).partition(b"\r\n\r\n")
    if not top:
        raise ValueError("no answer")
    return int(top.split(None, 2)[1]), json.loads(text.decode())


def call_of(name: str, words: "list[str]") -> "dict[str, Any]":
    """Return what the server needs: the words, who calls, where, when, and what of the environment it needs."""
    import pwd
    import time

    now = time.time()
    umask = os.umask(0o077)
    os.umask(umask)
    own = os.environ.items()
    if name == "sbatch":
        sent = {key: value for key, value in own if not key.startswith("RAINBOW_")}
    else:
        sent = {key: value for key, value in own if key.startswith(READ)}
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = os.environ.get("LOGNAME", "")
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    return {
        "words": words,
        "environment": {key: value for key, value in sent.items() if is_text(key) and is_text(value)},
        "folder": folder,
        "user": user,
        "uid": os.getuid(),
        "gid": os.getgid(),
        "umask": umask,
        "host": os.uname().nodename,
        "at": now,
        "offset": time.localtime(now).tm_gmtoff,
    }


def is_text(value: str) -> bool:
    """Return whether a variable can be sent."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def ask_again(name: str, url: str, header: str, body: "dict[str, Any]") -> "tuple[int, Any]":
    """Ask; a server that is away is asked again by sbatch: under one key it is one job."""
    import time

    end = time.time() + (RETRY if name == "sbatch" else 0.0)
    while True:
        try:
            status, answer = ask(name, url, header, body)
            if status not in (502, 503, 504):
                return status, answer
        except (OSError, ValueError):
            pass
        if time.time() >= end:
            return 0, {}
        time.sleep(1.0)


def read_script(path: str) -> str:
    """Return the text of a script."""
    if path in ("-", "/dev/stdin"):
        data = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            data = file.read()
    return data.decode("utf-8", "surrogateescape")


def remote(name: str, words: "list[str]") -> int:
    """Have the server carry out a command; return the exit code."""
    import time

    url, header = credentials()
    body = call_of(name, words)
    if name == "sbatch":
        body["key"] = os.urandom(16).hex()
    while True:
        status, answer = ask_again(name, url, header, body)
        if not status:
            sys.stderr.write(f"{name}: {AWAY}\n")
            return 1
        if status != 200:
            sys.stderr.write(f"{name}: error: {answer.get('detail') or status}\n")
            return 1
        if answer.get("read") is not None:
            try:
                body["script"] = read_script(answer["read"])
            except OSError:
                sys.stderr.write(f"sbatch: error: Unable to open file {answer['read']}\n")
                return 1
            continue
        sys.stdout.write(answer["out"])
        sys.stdout.flush()
        sys.stderr.write(answer["err"])
        if answer.get("again") is None:
            return int(answer["exit"])
        body = {"words": [], "waits_for": answer["waits_for"]}
        time.sleep(answer["again"])


# ── srun, inside a job ──

VALUED = (
    "ntasks=n nodes=N cpus-per-task=c output=o error=e input=i chdir=D time=t mem mem-per-cpu job-name=J gpus=G "
    "gpus-per-node gpus-per-task ntasks-per-node partition=p account=A mpi distribution=m jobid exclusive-user "
    "kill-on-bad-exit=K constraint=C export nodelist=w exclude=x qos=q cpu-bind mem-bind hint gres threads-per-core"
)
FLAGS = "unbuffered=u label=l exact exclusive overlap overcommit=O quiet=Q verbose=v no-kill=k oversubscribe=s"


OPTIONAL = ("exclusive", "kill-on-bad-exit", "mem-bind")  # with a value after "=" alone


def step_options(words: "list[str]") -> "tuple[dict[str, str], list[str], str]":
    """Read the words of srun; return its options, its command, and what is wrong with them."""
    valued = {word.partition("=")[0] for word in VALUED.split()}
    flags = {word.partition("=")[0] for word in FLAGS.split()}
    short = {word.partition("=")[2]: word.partition("=")[0] for word in (VALUED + " " + FLAGS).split()}
    results, remaining = {}, list(words)  # type: tuple[dict[str, str], list[str]]
    while remaining and remaining[0].startswith("-") and remaining[0] not in ("-", "--"):
        word = remaining.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name not in valued | flags:
                return results, remaining, f"srun: error: --{name} is not carried by Rainbow\n"
        else:
            name, value = short.get(word[1], ""), word[2:].lstrip("=")
            equals = value
            if not name:
                return results, remaining, f"srun: invalid option -- '{word[1]}'\n"
            if name in flags and value:  # further letters
                remaining.insert(0, "-" + value)
        needs = name in valued and not equals and name not in OPTIONAL
        results[name] = "" if name in flags else remaining.pop(0) if needs and remaining else value
    return results, remaining[1:] if remaining[:1] == ["--"] else remaining, ""


def file_of(pattern: str, rank: int) -> int:
    """Open a file of a task for appending."""
    import re

    own = os.environ
    job = own.get("SLURM_JOB_ID", "0")
    said = {
        "A": own.get("SLURM_ARRAY_JOB_ID") or job,
        "a": own.get("SLURM_ARRAY_TASK_ID", "4294967294"),
        "j": job,
        "J": job + ".0",
        "t": str(rank),
        "n": "0",
        "N": own.get("SLURMD_NODENAME") or os.uname().nodename,
        "x": own.get("SLURM_JOB_NAME", ""),
        "u": own.get("USER", ""),
        "s": "0",
        "%": "%",
    }

    def written(at: "re.Match[str]") -> str:
        text = said.get(at.group(2), at.group(0))
        return text.zfill(int(at.group(1) or 0)) if text.isdigit() else text

    path = re.sub("%([0-9]?)([A-Za-z%])", written, pattern)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


def step(words: "list[str]") -> int:
    """Start the tasks of a step on this node; return the highest exit code."""
    import subprocess

    if words[:1] in (["--version"], ["-V"]):
        sys.stdout.write("slurm-wlm 22.05.8\n")
        return 0
    options, command, wrong = step_options(words)
    if wrong or not command:
        sys.stderr.write(wrong or "srun: fatal: No command given to execute.\n")
        return 1
    own = os.environ
    if "SLURM_JOB_ID" not in own:
        sys.stderr.write("srun: error: outside a job srun is not carried by Rainbow; use rainbow run\n")
        return 1
    nodes, tasks = options.get("nodes", "").split("-")[0], options.get("ntasks")
    many = int(tasks or (nodes if nodes.isdigit() else "") or own.get("SLURM_NTASKS") or 1)
    if int(nodes or 0) > 1 or (not nodes and int(own.get("SLURM_NNODES") or 1) > 1 and many > 1):
        sys.stderr.write("srun: error: a step on several nodes is not carried by Rainbow on this cluster\n")
        return 1
    processes = []
    for rank in range(many):
        said = {
            "PROCID": rank,
            "LOCALID": rank,
            "NODEID": 0,
            "NTASKS": many,
            "NPROCS": many,
            "STEP_ID": 0,
            "STEPID": 0,
        }
        said.update({"STEP_NUM_TASKS": many, "STEP_NUM_NODES": 1, "STEP_TASKS_PER_NODE": many})
        if options.get("cpus-per-task"):
            said["CPUS_PER_TASK"] = int(options["cpus-per-task"])
        environment = dict(own, **{"SLURM_" + key: str(value) for key, value in said.items()})
        output, errors, read = options.get("output"), options.get("error"), options.get("input")
        out = None if output in (None, "", "none") else file_of(output, rank)
        err = file_of(errors, rank) if errors and errors != "none" else subprocess.STDOUT if out else None
        source = os.open(read, os.O_RDONLY) if read and os.path.exists(read) else subprocess.DEVNULL if rank else None
        try:
            started = subprocess.Popen(  # noqa: S603 - running what users ask for is the purpose; argv, no shell
                command, env=environment, stdout=out, stderr=err, stdin=source, cwd=options.get("chdir") or None
            )
        except OSError as fault:
            sys.stderr.write(f"srun: error: execve(): {command[0]}: {fault.strerror}\n")
            return 2
        processes.append(started)
    return wait_for(processes)


def wait_for(processes: "list[Any]") -> int:
    """Wait for the tasks of a step, passing signals on; return the highest exit code."""
    import signal

    def passed(number: int, _: "Any") -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGHUP):
        signal.signal(number, passed)
    codes = [int(process.wait()) for process in processes]
    return max(code if code >= 0 else 128 - code for code in codes)


def main() -> int:
    """Be the command that this file is called as."""
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name == "srun":
        return step(words)
    if name == "salloc":
        sys.stderr.write("salloc: error: salloc is not carried by Rainbow; use rainbow run\n")
        return 1
    return remote(name, words)


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 141
    try:
        sys.stdout.flush()
    except OSError:
        code = code or 141
    os._exit(code)

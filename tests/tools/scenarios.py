"""What each tool is made to do, as a program of its own Python: it prints nothing that matters and ends with 0."""

from __future__ import annotations

SNAKEFILE = """
rule all:
    input: "all.txt"
rule part:
    output: "part{n}.txt"
    retries: 1
    shell: "test {wildcards.n} != 7 -o -e tried || {{ touch tried; exit 1; }}; echo $SLURM_JOB_ID > {output}"
rule all_parts:
    input: expand("part{n}.txt", n=range(29))
    output: "all.txt"
    shell: "cat {input} > {output}"
"""
_SNAKEMAKE = """
import os, subprocess, sys
open("Snakefile", "w").write(%r)
words = ["--executor", "slurm", "-j", "30", "--latency-wait", "20", "--default-resources", "slurm_partition=oak"]
words += ["slurm_account=lab", "mem_mb=100", "runtime=10", "--seconds-between-status-checks", "5"]
snakemake = os.path.join(os.path.dirname(sys.executable), "snakemake")
subprocess.run([snakemake, *words, *%r], check=True)
assert len(open("all.txt").read().split()) == 29
"""
SNAKEMAKE = _SNAKEMAKE % (SNAKEFILE, [])
SNAKEMAKE_ARRAYS = _SNAKEMAKE % (SNAKEFILE, ["--slurm-array-jobs", "all"])
SNAKEMAKE_STOPPED = """
import os, signal, subprocess, sys, time
open("Snakefile", "w").write('rule all:\\n    output: "never.txt"\\n    shell: "sleep 300; touch {output}"\\n')
words = ["--executor", "slurm", "-j", "5", "--default-resources", "slurm_partition=oak", "slurm_account=lab"]
words += ["mem_mb=100", "runtime=10"]
snakemake = os.path.join(os.path.dirname(sys.executable), "snakemake")
run = subprocess.Popen([snakemake, *words])
queue = lambda: subprocess.run(["squeue", "--me", "-h", "-t", "R,PD"], capture_output=True, text=True).stdout
for _ in range(300):
    if queue():
        break
    time.sleep(0.2)
assert queue(), "nothing was submitted"
time.sleep(2)
run.send_signal(signal.SIGINT)
run.wait(60)
for _ in range(100):
    if not queue():
        break
    time.sleep(0.2)
assert not queue(), queue()
"""
DASK = """
import time
from dask.distributed import Client
from dask_jobqueue import SLURMCluster
cluster = SLURMCluster(cores=1, memory="200MB", processes=1, queue="oak", walltime="00:10:00", interface="lo")
cluster.scale(jobs=2)
client = Client(cluster)
client.wait_for_workers(2, timeout=120)
assert sum(client.gather(client.map(lambda k: k * k, range(10)))) == 285
cluster.scale(jobs=0)
time.sleep(5)
client.close(); cluster.close()
"""
_PARSL = """
import os, parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SimpleLauncher
from parsl.providers import SlurmProvider
path = os.environ["PATH"]
provider = SlurmProvider(
    partition="oak", nodes_per_block=1, init_blocks=1, max_blocks=1, walltime="00:10:00", cores_per_node=1,
    launcher=SimpleLauncher(), exclusive=False, cmd_timeout=60, worker_init="export PATH=%%s" %% path,
)
if %r:
    provider._cmd = "squeue --noheader --format='%%i %%t' --job '{0}'"
    provider._test_cmd = provider._cmd
executor = HighThroughputExecutor(label="htex", address="127.0.0.1", max_workers_per_node=2, provider=provider)
parsl.load(Config(executors=[executor], run_dir="runinfo", strategy="none"))
@parsl.python_app
def double(k):
    return 2 * k
assert [double(k).result(timeout=120) for k in range(5)] == [0, 2, 4, 6, 8]
parsl.dfk().cleanup()
"""
PARSL = _PARSL % False
SUBMITIT = """
import time, submitit
def double(k):
    return 2 * k
executor = submitit.AutoExecutor(folder="log", cluster="slurm")
executor.update_parameters(timeout_min=5, slurm_partition="oak", mem_gb=0.1, cpus_per_task=1)
job = executor.submit(double, 4)
assert job.result() == 8
jobs = executor.map_array(double, [1, 2, 3])
assert [one.result() for one in jobs] == [2, 4, 6]
waits = executor.submit(time.sleep, 300)
while waits.state not in ("RUNNING",):
    time.sleep(1)
waits.cancel()
while waits.state not in ("CANCELLED",) and not waits.state.startswith("CANCELLED"):
    time.sleep(1)
"""
PSIJ = """
from datetime import timedelta
from psij import Job, JobAttributes, JobExecutor, JobSpec, JobState, ResourceSpecV1
executor = JobExecutor.get_instance("slurm")
def job(*words):
    spec = JobSpec(executable=words[0], arguments=list(words[1:]))
    spec.resources = ResourceSpecV1(process_count=1, cpu_cores_per_process=1)
    spec.attributes = JobAttributes(duration=timedelta(minutes=5), queue_name="oak")
    return Job(spec)
good = job("/bin/true"); executor.submit(good)
status = good.wait(timeout=timedelta(seconds=90))
assert status is not None and status.state == JobState.COMPLETED, status
bad = job("/bin/false"); executor.submit(bad)
status = bad.wait(timeout=timedelta(seconds=90))
assert status is not None and status.state == JobState.FAILED, status
gone = job("/bin/sleep", "300"); executor.submit(gone)
gone.wait(timeout=timedelta(seconds=90), target_states=[JobState.ACTIVE])
gone.cancel()
status = gone.wait(timeout=timedelta(seconds=90))
assert status is not None and status.state == JobState.CANCELED, status
import os; os._exit(0)
"""
TOIL = """
import os, subprocess, sys
open("flow.py", "w").write('''
from toil.common import Toil
from toil.job import Job
class Child(Job):
    def __init__(self, number):
        super().__init__(memory="200M", cores=1, disk="100M", preemptible=False)
        self.number = number
    def run(self, store):
        marker = os.path.join(%r, "tried")
        if self.number == 1 and not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("once")
        return self.number * 2
class Parent(Job):
    def __init__(self):
        super().__init__(memory="200M", cores=1, disk="100M")
    def run(self, store):
        return [self.addChild(Child(number)).rv() for number in range(3)]
import os
if __name__ == "__main__":
    options = Job.Runner.getDefaultArgumentParser().parse_args()
    with Toil(options) as toil:
        assert toil.start(Parent()) == [0, 2, 4]
''' % os.getcwd())
words = ["./store", "--batchSystem", "slurm", "--slurmPartition", "oak", "--retryCount", "2", "--disableCaching"]
words += ["--statePollingWait", "2", "--defaultMemory", "200M", "--defaultCores", "1", "--workDir", os.getcwd()]
subprocess.run([sys.executable, "flow.py", *words], check=True)
"""
# name, package whose version is told, program, seconds
TOOLS = (
    ("snakemake", "snakemake-executor-plugin-slurm", SNAKEMAKE, 300),
    ("snakemake --slurm-array-jobs", "snakemake-executor-plugin-slurm", SNAKEMAKE_ARRAYS, 300),
    ("snakemake, Ctrl-C", "snakemake-executor-plugin-slurm", SNAKEMAKE_STOPPED, 120),
    ("dask-jobqueue", "dask-jobqueue", DASK, 200),
    ("parsl", "parsl", PARSL, 200),
    ("submitit", "submitit", SUBMITIT, 200),
    ("psij-python", "psij-python", PSIJ, 300),
    ("toil", "toil", TOIL, 300),
)
PACKAGES = ("snakemake", *dict.fromkeys(package for _, package, _, _ in TOOLS))

"""Slurm on this machine: munged, slurmctld and slurmd in the foreground, with all of their files in one folder and ports that were free."""
import os
import signal
import subprocess

from program import clean_environment, free_port, wait_until

PATH = "/usr/sbin:/sbin:" + os.environ.get("PATH", "")

# Processes are found by their parents and nothing is bound or limited: no control groups, which a container may not make. A job that is put back
# into the queue may start as soon as its old credential has expired.
CONF = """
ClusterName=one
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,defer_batch=0
MpiDefault=none
ReturnToService=2
KillWait=10
MinJobAge=300
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=localhost CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=low Nodes=localhost Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 OverSubscribe=NO State=UP
PartitionName=high Nodes=localhost PriorityTier=10 PreemptMode=OFF OverSubscribe=NO State=UP
"""


class SlurmCluster:
    """Starts with the object; stop() ends its daemons and every job."""

    def __init__(self, folder, cpus):
        self.folder, self.daemons = folder, []
        for name in ("state", "spool"):
            os.mkdir(os.path.join(folder, name))
        ports = {"controller": free_port(), "node": free_port()}
        self.write("slurm.conf", CONF.format(folder=folder, cpus=cpus, **ports))
        with open(os.path.join(folder, "munge.key"), "wb") as file:
            file.write(os.urandom(128))
        os.chmod(os.path.join(folder, "munge.key"), 0o600)
        self.environment = clean_environment(SLURM_CONF=os.path.join(folder, "slurm.conf"), PATH=PATH)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def start(self):
        at = lambda name: os.path.join(self.folder, name)
        self.daemon("munged", "--foreground", "--force", f"--socket={at('munge.socket')}", f"--key-file={at('munge.key')}", f"--log-file={at('munged.log')}",
                    f"--pid-file={at('munged.pid')}", f"--seed-file={at('munged.seed')}")
        self.expect(lambda: os.path.exists(at("munge.socket")), 20)
        self.daemon("slurmctld", "-D", "-i")
        self.expect(lambda: "UP" in self.run("scontrol", "ping", check=False), 30)
        self.daemon("slurmd", "-D", "-N", "localhost")
        self.expect(lambda: self.run("sinfo", "-h", "-p", "low", "-o", "%T").strip() == "idle", 30)

    def daemon(self, *words):
        """It ends with this process, however that ends."""
        with open(os.path.join(self.folder, words[0] + ".said"), "w") as said:
            self.daemons.append(subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *words], env=self.environment, stdin=subprocess.DEVNULL,
                                                 stdout=said, stderr=said, start_new_session=True))

    def said(self):
        texts = []
        for name in ("munged", "slurmctld", "slurmd"):
            with open(os.path.join(self.folder, name + ".said"), errors="replace") as file:
                texts.append(f"--- {name}\n" + file.read()[-3000:])
        return "\n".join(texts)

    def expect(self, condition, seconds):
        """Asks Slurm several times a second: each question is a process."""
        if not wait_until(condition, seconds):
            raise AssertionError(f"Slurm did not get there within {seconds} s\n{self.said()}")

    def run(self, *words, check=True):
        finished = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, cwd=self.folder)
        if check and finished.returncode != 0:
            raise AssertionError(f"{' '.join(words)}: {finished.stderr}\n{self.said()}")
        return finished.stdout

    def submit(self, *words):
        """The number of the job."""
        return self.run("sbatch", "--parsable", *words).strip()

    def facts(self, job):
        """What scontrol tells of it: JobState, Restarts, ExitCode, ..."""
        text = self.run("scontrol", "show", "job", "--oneliner", job, check=False)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for(self, job, state, seconds=60):
        self.expect(lambda: self.facts(job).get("JobState") == state, seconds)

    def stop(self):
        if len(self.daemons) == 3:
            subprocess.run(["scancel", "--full", "--signal=KILL", "--user=root"], env=self.environment, capture_output=True, timeout=60, check=False)
            wait_until(lambda: not self.run("squeue", "-h", "-t", "RUNNING,COMPLETING", check=False).strip(), 15)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []

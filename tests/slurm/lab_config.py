"""The files that make a lab's Slurm: slurm.conf, gres.conf, hosts, resolv.conf. Pure: text from a Plan.

Keys and their meaning: slurm.conf(5) and gres.conf(5) of Slurm 22.05, which Debian 12 has.
"""

import dataclasses
import ipaddress

CONTROLLER = "ctl"
CONTROLLER_ADDRESS = "10.77.0.100"
# Routed to where nothing answers and nothing is refused.
DEAD_NAME_SERVER = "10.77.255.53"
SINK = "10.77.0.0/16"
CONTROLLER_PORT = 6817
SLURMD_PORT = 17000  # and the node's number: with one port for all, tasks cannot call srun back


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a lab consists of. `folder` is absolute; `user` is whom the daemons run as."""
    folder: str
    user: str
    nodes: int = 3
    cpus: int = 4
    gpus: int = 0  # of each node but the last `cpu_nodes`
    cpu_nodes: int = 0
    networks: int = 1  # interfaces of each node: eth0, eth1, ...
    dead_name_server: bool = False
    own_name: bool = False  # beside a dead name server, a node can look up its own name, and no other
    slurmd_timeout_s: int = 10
    kill_wait_s: int = 3
    grace_s: int = 0  # from a preemption's first signal to its end, of jobs in the partition main
    settings: tuple = ()  # further (key, value) pairs of slurm.conf; they replace those below

    def names(self):
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    def gpus_of(self, name):
        return self.gpus if number_of(name) <= self.nodes - self.cpu_nodes else 0


def number_of(name):
    return int(name.removeprefix("n"))


def address_of(name, network=0):
    return str(ipaddress.IPv4Address("10.77.0.0") + 256 * network + number_of(name))


def controller_address(network=0):
    return str(ipaddress.IPv4Address(CONTROLLER_ADDRESS) + 256 * network)


def hosts(plan, host):
    """The hosts file of a node, or of the controller. Where the name server is dead, what asks for a name of
    another node must wait."""
    every = {CONTROLLER: CONTROLLER_ADDRESS, **{name: address_of(name) for name in plan.names()}}
    if plan.dead_name_server:
        own = plan.own_name or host == CONTROLLER  # munged asks for its own, and would start late
        every = {host: every[host]} if own else {}
    return "127.0.0.1 localhost\n" + "".join(f"{to} {name}\n" for name, to in every.items())


def resolv_conf(plan):
    # Without a server the resolver asks one on this host, and is refused at once.
    return f"nameserver {DEAD_NAME_SERVER}\n" if plan.dead_name_server else "# no name server\n"


def slurm_conf(plan):
    settings = {
        "ClusterName": "lab",
        "SlurmctldHost": f"{CONTROLLER}({CONTROLLER_ADDRESS})",
        "SlurmctldPort": CONTROLLER_PORT,
        "SlurmUser": plan.user,
        "SlurmdUser": plan.user,
        "AuthType": "auth/munge",
        # A requeued job waits until its old credential has expired: 120 s by default, and 5 s at least.
        "AuthInfo": f"socket={plan.folder}/munge/socket,cred_expire=5",
        "StateSaveLocation": f"{plan.folder}/ctl/state",
        "SlurmctldPidFile": f"{plan.folder}/ctl/slurmctld.pid",
        "SlurmctldLogFile": f"{plan.folder}/logs/slurmctld.log",
        "SlurmdSpoolDir": f"{plan.folder}/nodes/%n/spool",
        "SlurmdPidFile": f"{plan.folder}/nodes/%n/slurmd.pid",
        "SlurmdLogFile": f"{plan.folder}/logs/slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "GresTypes": "gpu",
        "ReturnToService": 2,
        "SlurmdParameters": "config_overrides",  # nodes may have more CPUs than the machine
        "SlurmdTimeout": plan.slurmd_timeout_s,
        "KillWait": plan.kill_wait_s,
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        # As fast as Slurm allows; by default it lets batch jobs wait for three seconds.
        "SchedulerParameters": "bf_interval=1,sched_interval=1,batch_sched_delay=0",
        "SlurmctldDebug": "verbose",
    }
    settings.update(dict(plan.settings))
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += [_node_line(plan, name) for name in plan.names()]
    lines.append(f"PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=1 "
                 f"GraceTime={plan.grace_s}")
    lines.append("PartitionName=urgent Nodes=ALL State=UP PriorityTier=10")
    return "\n".join(lines) + "\n"


def _node_line(plan, name):
    gpus = plan.gpus_of(name)
    return (f"NodeName={name} NodeHostname={name} NodeAddr={address_of(name)} "
            f"Port={SLURMD_PORT + number_of(name)} CPUs={plan.cpus} RealMemory=4000"
            + (f" Gres=gpu:{gpus}" if gpus else ""))


def gres_conf(plan):
    """CUDA_VISIBLE_DEVICES is the number at the end of the device's name."""
    last = f"[0-{plan.gpus - 1}]" if plan.gpus > 1 else "0"
    with_gpus = [name for name in plan.names() if plan.gpus_of(name)]
    return "".join(f"NodeName={name} Name=gpu File={plan.folder}/dev/gpu{last}\n"
                   for name in with_gpus)


# Slurm looks for cgroups on its own; the lab's nodes have none.
CGROUP_CONF = "ConstrainCores=no\nConstrainDevices=no\nConstrainRAMSpace=no\n"

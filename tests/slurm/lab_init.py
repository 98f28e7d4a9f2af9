"""The processes with number 1 of a lab: of the lab as a whole, and of each of its nodes.

  lab_init.py lab FD FOLDER      in the lab's namespaces; takes orders from the socket FD, one JSON
                                 object per line, and answers each with one
  lab_init.py node FOLDER NAME   in the node's namespaces; started by the former

The kernel ends every process of a PID namespace when its first one ends: that is how a node loses its
power, and how nothing of a lab outlives the test that made it, however that ends. lab.py starts all this.
"""

import ctypes
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
import uuid

import lab_config

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 1, 32, 4096, 16384
START_S = 20
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind=None, flags=0, data=None):
    """mount(2), since the program of that name refuses all users but root."""
    encoded = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    if LIBC.mount(*encoded, ctypes.c_ulong(flags), None if data is None else data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def bind(source, target):
    mount(str(source), str(target), flags=MS_BIND | MS_REC)


def own_hosts(folder, plan, host):
    path = folder / "etc" / f"hosts-{host}"
    path.write_text(lab_config.hosts(plan, host), encoding="ascii")
    bind(path, "/etc/hosts")


def load_plan(folder):
    values = json.loads((pathlib.Path(folder) / "plan.json").read_text(encoding="utf-8"))
    visible = values.pop("visible")
    values["settings"] = tuple(map(tuple, values["settings"]))
    return lab_config.Plan(**values), visible


def unprivileged(words):
    """The command without the capabilities that this namespace gives to its maker."""
    if os.getuid() == 0:
        return list(words)
    return ["setpriv", "--ambient-caps=-all", "--inh-caps=-all", *words]


def start(words, log, **options):
    with open(log, "ab") as output:
        return subprocess.Popen(list(map(str, words)), stdout=output, stderr=output,
                                stdin=options.pop("stdin", subprocess.DEVNULL),
                                start_new_session=True, **options)


def ip(*lines):
    """`ip -batch`: all lines in one process."""
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True,
                          capture_output=True, check=False, timeout=20)
    if done.returncode != 0:
        raise OSError(f"ip: {done.stderr.strip()}")


def cable_address(name, network):
    """The Ethernet address of the cable's end away from the node."""
    return f"02:00:00:00:{network:02x}:{lab_config.number_of(name):02x}"


class Lab:
    """Owns the lab's namespaces; runs in the one thread of its process 1."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.plan, _ = load_plan(folder)
        self.nodes = {}  # name: Popen of the `unshare` that waits for the node's process 1
        self.controller = None
        self.munged = None

    # What is there before any node.

    def prepare(self):
        self._mounts()
        socket.sethostname(lab_config.CONTROLLER)
        self._network()
        self._munged()

    def _mounts(self):
        own_hosts(self.folder, self.plan, lab_config.CONTROLLER)
        if pathlib.Path("/etc/resolv.conf").exists():
            bind(self.folder / "etc" / "resolv.conf", "/etc/resolv.conf")
        for device in (self.folder / "dev").iterdir():
            bind("/dev/null", device)
        if os.getuid() == 0:
            self._protect_cgroups()

    def _protect_cgroups(self):
        """No process inside may make a cgroup: it would outlive the lab."""
        for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            target = line.split()[4]
            if target.startswith("/sys/fs/cgroup"):
                mount(None, target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)

    def _network(self):
        # The sink: a cable whose other end is never plugged in. Packets to an address without a node are lost without
        # an error, as behind a switch that lost its power.
        ip("link set lo up",
           *(f"addr add {lab_config.controller_address(network)}/32 dev lo"
             for network in range(self.plan.networks)),
           "link add sink type veth peer name sink-end",
           "link set sink arp off up",
           f"route add {lab_config.SINK} dev sink")
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")

    def _munged(self):
        home = self.folder / "munge"
        self.munged = start(
            unprivileged(["munged", "--foreground", "--force", "--num-threads=4",
                          f"--key-file={home}/key", f"--socket={home}/socket",
                          f"--pid-file={home}/pid", f"--seed-file={home}/seed"]),
            self.folder / "logs" / "munged.log")
        deadline = time.monotonic() + START_S
        while not (home / "socket").exists():
            if self.munged.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"munged does not start; see {self.folder}/logs/munged.log")
            time.sleep(0.005)

    # Orders. Each returns what is answered.

    def start_controller(self, clean=False):
        options = ["-c"] if clean else []
        self.controller = start(
            unprivileged(["slurmctld", "-D", "-f", self.folder / "etc" / "slurm.conf", *options]),
            self.folder / "logs" / "slurmctld.out")
        return {"pid": self.controller.pid}

    def stop_controller(self, number=signal.SIGTERM):
        self._end(self.controller, number)
        return {}

    def start_node(self, name):
        """The node boots: a cable, an empty memory, its old /tmp, and slurmd."""
        if name in self.nodes:
            raise ValueError(f"node {name} is on already")
        node = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
             "--mount-proc", sys.executable, "-S", __file__, "node", str(self.folder), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first = node.stdout.readline()  # its namespaces are there, and its own process 1
        if not first:
            self._end(node, signal.SIGKILL)
            raise OSError(f"node {name} did not start; see {self.folder}/logs/node-{name}.log")
        for network in range(self.plan.networks):
            self._plug_in(name, network, node.pid)
        node.stdin.write(b"go\n")
        node.stdin.close()
        node.stdout.close()
        self.nodes[name] = node
        return {"pid": node.pid}

    def _plug_in(self, name, network, pid):
        cable = f"{name}-{network}"
        ip(f"link add {cable} address {cable_address(name, network)} type veth "
           f"peer name eth{network} netns {pid}",
           f"addr add {lab_config.controller_address(network)}/32 "
           f"peer {lab_config.address_of(name, network)} dev {cable}",
           f"link set {cable} up")

    def kill_node(self, name):
        node = self.nodes.pop(name)
        children = pathlib.Path(f"/proc/{node.pid}/task/{node.pid}/children")
        for child in children.read_text(encoding="ascii").split():
            os.kill(int(child), signal.SIGKILL)
        node.wait(timeout=30)  # it ends when all of the node's processes have
        # A network namespace goes away some time after its last process; its cable must at once.
        for network in range(self.plan.networks):
            try:
                ip(f"link del {name}-{network}")
            except OSError:
                if f"{name}-{network}" in (cable for _, cable in socket.if_nameindex()):
                    raise
        return {}

    def set_link(self, name, up, networks):
        ip(*(f"link set {name}-{network} {'up' if up else 'down'}" for network in networks))
        return {}

    def _end(self, process, number):
        if process.poll() is None:
            process.send_signal(number)
        process.wait(timeout=30)

    # The loop.

    def serve(self, connection):
        """Until the other end is closed; then this process ends, and everything with it."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        lines = connection.makefile("r", encoding="utf-8")
        while True:
            ready, _, _ = select.select([connection, woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
                self._reap_orphans()
            if connection in ready:
                line = lines.readline()
                if not line:
                    return
                connection.sendall(json.dumps(self._answer(json.loads(line))).encode() + b"\n")

    def _answer(self, order):
        commands = {"start_controller": self.start_controller, "start_node": self.start_node,
                    "stop_controller": self.stop_controller, "kill_node": self.kill_node,
                    "set_link": self.set_link}
        try:
            return {"ok": commands[order.pop("order")](**order)}
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _reap_orphans(self):
        """Processes without another parent: process 1 inherits them."""
        own = {p.pid for p in (*self.nodes.values(), self.controller, self.munged)
               if p and p.poll() is None}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in own:
                return  # one of our own is asked when it is needed
            os.waitpid(ended.si_pid, 0)


def run_lab(descriptor, folder):
    lab = Lab(folder)
    with socket.socket(fileno=descriptor) as connection:
        try:
            lab.prepare()
        except OSError as error:
            connection.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
            return 1
        connection.sendall(b'{"ok": {}}\n')
        lab.serve(connection)
    return 0


# A node.

def private_tmp(folder, name, visible):
    """The node's own /tmp, with what every node must see where it is for everybody."""
    own = folder / "nodes" / name / "tmp"
    for path in visible:
        inside = own / pathlib.Path(path).relative_to("/tmp")
        if pathlib.Path(path).is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
        bind(path, inside)
    bind(own, "/tmp")


def boot(folder, name):
    """Programs know a host, and that it was booted again, by this number of its kernel."""
    path = folder / "nodes" / name / "boot_id"
    path.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    bind(path, "/proc/sys/kernel/random/boot_id")


def node_network(plan, name):
    lines = ["link set lo up"]
    for network in range(plan.networks):
        router = lab_config.controller_address(network)
        lines += [f"addr add {lab_config.address_of(name, network)}/32 peer {router} dev eth{network}",
                  f"link set eth{network} up",
                  # Otherwise the node's own kernel reports after three seconds that there is no answer; behind a switch
                  # it would not.
                  f"neigh add {router} lladdr {cable_address(name, network)} dev eth{network} "
                  "nud permanent"]
    lines.append(f"route add default via {lab_config.CONTROLLER_ADDRESS} dev eth0 "
                 f"src {lab_config.address_of(name)}")
    for network in range(1, plan.networks):
        lines.append(f"route add 10.77.{network}.0/24 "
                     f"via {lab_config.controller_address(network)} dev eth{network} "
                     f"src {lab_config.address_of(name, network)}")
    ip(*lines)


def run_node(folder, name):
    folder = pathlib.Path(folder)
    plan, visible = load_plan(folder)
    log = folder / "logs" / f"node-{name}.log"
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), 2)
    socket.sethostname(name)
    mount("shm", "/dev/shm", "tmpfs", data="mode=1777,size=2g")
    private_tmp(folder, name, visible)
    boot(folder, name)
    own_hosts(folder, plan, name)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 1
    node_network(plan, name)
    # -b: booted now. What it would tell of itself is when the machine was.
    start(unprivileged(["slurmd", "-D", "-b", "-N", name, "-f", folder / "etc" / "slurm.conf"]),
          folder / "logs" / f"slurmd-{name}.out", cwd="/")
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return 0  # a node without any process is off


if __name__ == "__main__":
    if sys.argv[1] == "lab":
        sys.exit(run_lab(int(sys.argv[2]), sys.argv[3]))
    sys.exit(run_node(sys.argv[2], sys.argv[3]))

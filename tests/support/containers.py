"""podman as root with storage, networks and settings of its own, which lie in a folder and go with it.

  subprocess.run([*NAMESPACE, "podman", "load", "--input", archive], env=environment(folder))
"""

import os
import resource

# Before a command, for a mount namespace of its own: crun refuses version 2 of control groups beside version 1.
NAMESPACE = ("unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null || true; exec "$@"', "sh")


def environment(folder):
    """That of this process with such settings in `folder`, whose limits need no CAP_SYS_RESOURCE."""
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    files, processes = (min(limit, 16384) if limit != resource.RLIM_INFINITY else 16384 for limit in
                        (resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)))
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\ncgroups = "disabled"\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "crun"\n'
        f'[network]\nnetwork_backend = "cni"\nnetwork_config_dir = "{folder}/cni"\n', encoding="utf-8")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n', encoding="utf-8")
    return {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}

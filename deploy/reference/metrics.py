"""Tables of docs/metrics.md out of the sources that export the metrics: name, type and help are theirs.

LABELS are beside them; tests/prometheus compares them with what running daemons export.
"""

import re

LITERALS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
CALLS = (
    re.compile(rf'\b(Gauge|Counter|Histogram)\(\s*"(muster_\w+)",\s*{LITERALS}\)'),
    re.compile(rf'\bMake(Counter|Histogram)s\(\s*&counted_,\s*"(muster_\w+)",\s*{LITERALS}\)'),
    re.compile(rf'(\n)\s*add\("(muster_\w+)",\s*{LITERALS},'),  # of gauges that a GPU may have
)

STATES = "queued, starting, running, recovering, stopping, suspended, succeeded, failed, cancelled"
SPENT = "step, recompute, checkpoint, recovery, hang, queue, idle"
# Labels beside those of the table, with their values; "SECTION NAME" where a name is in several tables.
LABELS = {
    "muster_train_step_phase_seconds_total": {"phase": "data, forward, backward, optimizer, comm_wait, checkpoint"},
    "muster_train_time_seconds_total": {"category": "step, recompute, checkpoint, wait"},
    "muster_train_phase": {"phase": "step, evaluating, checkpoint, exporting, reading_rows, loading, loading_frozen, "
                                    "forming, starting, parked, standby, done"},
    "muster_train_expert_share_ratio": {"bound": "largest, smallest"},
    "muster_checkpoint_duration_seconds": {"phase": "stage, write"},
    "muster_nccl_collectives_total": {"op": "all_gather, reduce_scatter, all_reduce, broadcast, shift, barrier, all_to_all"},
    "muster_nccl_async_errors_total": {"kind": "peer_lost, timeout, internal"},
    "muster_nccl_seq": {"comm": ""}, "muster_nccl_completed_seq": {"comm": ""}, "muster_nccl_bytes": {"comm": ""},
    "muster_cuda_memory_bytes": {"state": "active, allocated, reserved"},
    "muster_cuda_memory_peak_bytes": {"state": "active, allocated, reserved"},
    "muster_gpu_info": {"uuid": "", "slurm_job_id": ""},
    "muster_job_info": {"name": "", "attempt": "", "world_size": "", "device": "cpu, cuda"},
    "muster_job_state": {"name": "", "state": STATES},
    "muster_job_goodput_seconds_total": {"state": SPENT},
    "muster_job_straggler_ratio": {"rank": "", "node": ""},
    "muster_queue_gpus": {"kind": "used, guarantee, ceiling"}, "muster_queue_slots": {"kind": "used, guarantee, ceiling"},
    "muster_queue_jobs": {"state": "running, waiting"},
    "muster_queue_gpu_seconds_total": {"kind": "allocated, productive, lost"},
    "muster_queue_slot_seconds_total": {"kind": "allocated, productive, lost"},
    "muster_jobs_ended_total": {"outcome": "succeeded, failed, time_limit, cancelled"},
    "muster_cluster_goodput_seconds_total": {"state": SPENT},
    "muster_restarts_total": {"tier": "in_place, respawn, spare, shrink, grow, requeue, launch", "cause": ""},
    "muster_recovery_duration_seconds": {"stage": "detect, abort, reform, load, first_step, total", "tier": ""},
    "muster_nccl_hangs_total": {"suspect": ""},
    "muster_checkpoint_failures_total": {"reason": "disk_full, read_only, io_error, slow_disk, other"},
    "muster_checkpoint_scrubs_total": {"result": "whole, damaged, unreadable"},
    "cluster muster_checkpoint_duration_seconds": {"phase": "commit"},
    "muster_node_state": {"node": "", "state": "joining, ready, suspect, lost, draining, drained, quarantined"},
    **{f"muster_node_{what}": {"node": ""} for what in (
        "slots", "slots_used", "gpus", "gpus_allocated", "gpus_unusable", "drain_requested", "leave_timestamp_seconds")},
    "muster_worker_heartbeat_age_seconds": {"node": ""},
    "muster_pilots": {"state": ""},
    "muster_on_event_total": {"result": "done, failed, refused"},
    "muster_build_info": {"version": "", "component": "coordinator, worker"},
    "muster_worker_probes_total": {"outcome": "answered, refused, unreachable, silent, unknown"},
    "muster_worker_notices_total": {"kind": ""},
    "muster_certificate_renewals_total": {"result": "done, failed"},
}

RANK = ("job_id", "name", "node", "rank")
# Section: sources and which names of each, labels of all its metrics, and of its gauges besides.
SECTIONS = {
    "ranks": ((("worker/service/rank_metrics.cc", ""),), RANK, ("attempt",)),
    "gpus": ((("worker/service/metrics.cc", "muster_gpu_"),), ("node", "gpu"), ()),
    "worker": ((("worker/service/metrics.cc", "(?!muster_gpu_)"),), ("node",), ()),
    "jobs": ((("coordinator/job_metrics.cc", "(?!muster_cluster_)"),), ("job_id",), ()),
    "queues": ((("coordinator/queue_metrics.cc", ""),), ("queue",), ()),
    "cluster": ((("coordinator/metrics.cc", ""), ("coordinator/job_metrics.cc", "muster_cluster_")), (), ()),
}


def exported(source):
    """[(name, type, help)] in the order of a source."""
    found = {}
    for pattern in CALLS:
        for call in pattern.finditer(source):
            kind = call[1].strip().lower() or "gauge"
            found.setdefault(call[2], (call.start(), kind, "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call[3]))))
    return [(name, kind, text) for name, (_, kind, text) in sorted(found.items(), key=lambda item: item[1][0])]


def families(root):
    """{section: [(name, type, labels, help)]}."""
    made = {}
    for section, (sources, common, of_gauges) in SECTIONS.items():
        made[section] = [
            (name, kind, common + (of_gauges if kind == "gauge" else ()), text)
            for path, names in sources for name, kind, text in exported((root / path).read_text(encoding="utf-8"))
            if re.match(names, name)]
    return made


def labels_beside(section, name):
    return LABELS.get(f"{section} {name}", LABELS.get(name, {}))


def sections(root):
    """{name: text} of the generated sections of docs/metrics.md."""
    made, tables = {}, families(root)
    names = {name for rows in tables.values() for name, *_ in rows}
    if unknown := {key.rpartition(" ")[2] for key in LABELS} - names:
        raise SystemExit(f"deploy/reference/metrics.py: LABELS names what is not exported: {', '.join(sorted(unknown))}")
    for section, rows in tables.items():
        base = ", ".join(f"`{label}`" for label in SECTIONS[section][1])
        more = "".join(f"; gauges have `{label}` too" for label in SECTIONS[section][2])
        text = f"Labels of all: {base}{more}.\n\n" if base else ""
        text += "| metric | type | further labels | what |\n|---|---|---|---|\n"
        for name, kind, _, said in rows:
            labels = "; ".join(f"`{label}`" + (f": {values}" if values else "")
                               for label, values in labels_beside(section, name).items())
            text += f"| `{name}` | {kind} | {labels} | {said} |\n"
        made[section] = text
    return made


def labels_of(root):
    """{name: labels that a sample of it may have}, for the comparison with running daemons."""
    found = {}
    for section, rows in families(root).items():
        for name, _, labels, _ in rows:
            found.setdefault(name, set()).update(labels, labels_beside(section, name))
    return found

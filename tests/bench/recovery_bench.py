#!/usr/bin/env python3
"""What each kind of fault costs, on quickstart's model: seconds to the decision and to the next step.

  recovery_bench.py [--kinds rank_killed_in_place,...] [--runs N] [--peer-runs N]
                    [--stall-runs N] [--overload-minutes M] [--beside BIN_DIR] [--chart FILE]

Faults of one kind hit few long-lived jobs, each once the generation before has trained for some steps and
its standbys wait. The next step is finished when its line is in metrics.jsonl; the decision is the
coordinator's event `aborting`; the other stages are the coordinator's own. Faults of nodes need root
(network namespaces). --peer-runs does the same to torchrun with FSDP2 and a sharded checkpoint every 5
steps (at most 60 s each). --adapter-runs kills ranks of a QLoRA job beside a larger model, --gpu-runs
those of a job whose two ranks share a GPU, --mixture-runs those of a mixture of experts and of a dense model of as
many bytes. --stall-runs compares steps with and without snapshots. --overload-minutes
trains beside busy processes, --busy-per-core of them, and counts verdicts, all of which are false.
--beside takes turns with another build of Muster, a few faults each, in what --kinds and --coordinator-runs
measure; `difference` is what ours took more. --chart draws the faults that torchrun had as well (docs/recovery.svg).
Prints one JSON object.
"""

import argparse
import collections
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import builds  # noqa: E402
import chart  # noqa: E402
import elastic_peer  # noqa: E402
import machine  # noqa: E402
from cluster import ROOT, Cluster, can_have_namespaces, kill, read_metrics, run, wait_until, write_rows  # noqa: E402
from recovery_runs import LongJob, stop_process  # noqa: E402

FAULTS_PER_JOB = 50
FAULTS_IN_TURN = 5  # of a build, with --beside
STORED_JOBS = 1000
# Ours, the peer's, and what both are called.
CHARTED = (("rank_killed_in_place", "rank_killed_unshared_store", "a rank is killed"),
           ("node_killed_spare", "node_killed_spare", "a node dies, another joins"),
           ("node_killed_shrink", "node_killed_shrink", "a node dies, fewer ranks"))
STALL_STEPS = 200
QLORA_SHAPE = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 24,
               "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64}

EXPERTS = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 16,
           "num_experts_per_tok": 4, "moe_intermediate_size": 64, "norm_topk_prob": True}


def rank_killed(make, runs, **restart):
    cluster = make(nodes=2)
    try:
        return ranks_killed(cluster, runs, nodes=2, restart=restart)
    finally:
        cluster.close()


def ranks_killed(cluster, runs, **job_options):
    """Ranks of jobs of two, in turn."""
    measured = []
    while len(measured) < runs:
        job = LongJob(cluster, **job_options)
        for i in range(min(FAULTS_PER_JOB, runs - len(measured))):
            if i:
                job.calm()
            pid = job.ranks()[i % 2]
            job.fault(lambda pid=pid: kill_at(pid))
        measured += job.end()
    return measured


def shared_spare_taken(make, runs, lent, take):
    """Two jobs of two nodes share the fifth, which takes the place of one that `take` takes away; `lent`: a preemptible
    job trains there until then."""
    cluster = make(nodes=5, slots=1, up=("--netns", "--allow-faults"))
    measured = []
    try:
        for i in range(runs):
            guarded = {"nodes": 2, "resources": {"spares": 1, "share_spares": True}}
            job, other = LongJob(cluster, **guarded), LongJob(cluster, **guarded)
            [spare] = cluster.get(job.job)["attempts"][-1]["spares"]
            if cluster.get(other.job)["attempts"][-1]["spares"] != [spare]:
                raise AssertionError("the spare is not shared:\n" + cluster.describe(other.job))
            borrower = LongJob(cluster, nodes=1, preemptible=True) if lent else None
            if borrower and cluster.get(borrower.job)["attempts"][-1]["lent"] != [spare]:
                raise AssertionError("the spare is not lent:\n" + cluster.describe(borrower.job))
            victim = job.nodes()[i % 2]
            job.fault(lambda job=job, victim=victim: take(cluster, job, victim))
            for each in filter(None, (borrower, other)):
                each.end()
            measured += job.end()
            cluster.set_link(victim, True)
            cluster.up()
            cluster.wait_until_ready()
    finally:
        cluster.close()
    return measured


def kill_at(pid):
    at = time.time()
    kill(pid)
    return at


def gpu_rank_killed(runs):
    """Both ranks of the job compute on the one GPU of the node, and meet by NCCL."""
    cluster = Cluster(None, nodes=1)
    try:
        cluster.wait_until_ready()
        cluster.restart_worker("n1", "--oversubscribe-gpus", 2)
        return summarise(ranks_killed(cluster, runs, nodes=1,
                                      resources={"device": "cuda", "ranks_per_node": 2}))
    finally:
        cluster.close()


def rank_hangs(make, runs, how):
    """`how` hangs rank number N of a job; stopped processes that survive it are let go again."""
    cluster = make(nodes=2, up=("--allow-faults",))
    try:
        job = LongJob(cluster, nodes=2)
        for i in range(runs):
            if i:
                job.calm()
            job.fault(lambda i=i: how(cluster, job, i % 2))
        return job.end()
    finally:
        cluster.close()


def stop_rank(_, job, rank):
    return stop_process(job.ranks()[rank])


def hang_rank(cluster, job, rank):
    at = time.time()
    cluster.muster("fault", job.job, "--rank", rank, "--kind", "hang-data")
    return at


def node_lost(make, runs, spare, take):
    """Three nodes. With a spare the job has two of them; else three, of which it can do without one."""
    cluster = make(nodes=3, slots=2, up=("--netns", "--allow-faults"))
    resources = {"spares": 1} if spare else {"min_nodes": 2}
    measured = []
    try:
        for i in range(runs):
            job = LongJob(cluster, nodes=2 if spare else 3, resources=resources)
            nodes = job.nodes()
            victim = nodes[i % len(nodes)]
            job.fault(lambda job=job, victim=victim: take(cluster, job, victim))
            measured += job.end()
            cluster.set_link(victim, True)
            cluster.up()
            cluster.wait_until_ready()
    finally:
        cluster.close()
    return measured


def kill_all(cluster, job, node):
    at = time.time()
    cluster.kill_node(node, job.job)
    return at


def cut(cluster, _, node):
    at = time.time()
    cluster.set_link(node, False)
    return at


def restart_seconds(cluster):
    kill(cluster.coordinator_pid())
    began = time.monotonic()
    cluster.up()
    seconds = time.monotonic() - began
    if len(cluster.json("get")) < STORED_JOBS:
        raise AssertionError("the coordinator forgot jobs")
    return seconds


def coordinator_killed(programs, runs):
    """With many jobs stored: from the start of `muster up` until coordinator and node are ready."""
    rounds = machine.Rounds()
    with builds.clusters(programs, nodes=1) as clusters:
        for cluster in clusters.values():
            for _ in range(STORED_JOBS):
                cluster.submit(cluster.train_job(name="waits", nodes=2, fsdp={}))
        for _ in range(runs):
            rounds.take({name: functools.partial(restart_seconds, cluster) for name, cluster in clusters.items()})
    return {**rounds.summaries(), **builds.difference(rounds.values)}


def adapters_killed(runs):
    """Ranks of a QLoRA job whose model takes long to load: that is done once, not after each fault."""
    cluster = Cluster(None, nodes=2)
    try:
        shape = json.loads((cluster.model() / "config.json").read_text())
        shape.update(QLORA_SHAPE)
        config, model = cluster.path("large.json"), cluster.path("large")
        config.write_text(json.dumps(shape))
        run("muster-trainer", "init-model", "--config", config, "--out", model, timeout=300)
        job = LongJob(cluster, nodes=2, model=model, lora={"r": 8}, quantization={"kind": "nf4"},
                      data={"train": str(write_rows(cluster.path("rows.jsonl"))), "max_seq_len": 32},
                      batch={"per_rank": 1, "accumulation": 1}, calm_within=300)
        first = cluster.get(job.job)["attempts"][0]["seconds"]["load"]
        for i in range(runs):
            if i:
                job.calm()
            pid = job.ranks()[i % 2]
            job.fault(lambda pid=pid: kill_at(pid))
        size = sum(file.stat().st_size for file in model.glob("*.safetensors"))
        return {"model_bytes": size, "first_load_s": first, **summarise(job.end())}
    finally:
        cluster.close()


def mixtures_killed(runs):
    """Ranks of a dense model, and of a mixture of experts with as many bytes, undivided and by expert_parallel,
    in turn."""
    dense = {"intermediate_size": EXPERTS["num_experts"] * EXPERTS["moe_intermediate_size"]}
    figures = {name: [] for name in ("dense", "mixture", "expert_parallel")}
    cluster = Cluster(None, nodes=2)
    try:
        shape = json.loads((cluster.model() / "config.json").read_text())
        models = {}
        for name, family in (("dense", dense), ("mixture", EXPERTS)):
            config, models[name] = cluster.path(f"{name}.json"), cluster.path(name)
            config.write_text(json.dumps({**shape, **family}))
            run("muster-trainer", "init-model", "--config", config, "--out", models[name], timeout=300)
        models["expert_parallel"] = models["mixture"]
        for _ in range(0, runs, FAULTS_IN_TURN):
            for name, measured in figures.items():
                divided = {"fsdp": {"mixed_precision": "fp32",
                                    **({"expert_parallel": 2} if name == "expert_parallel" else {})}}
                measured += ranks_killed(cluster, FAULTS_IN_TURN, nodes=2, model=models[name], **divided)
        return {name: {"model_bytes": sum(file.stat().st_size for file in models[name].glob("*.safetensors")),
                       **summarise(measured)} for name, measured in figures.items()}
    finally:
        cluster.close()


KINDS = {
    "rank_killed_in_place": (200, rank_killed),
    "rank_killed_respawn": (200, lambda make, runs: rank_killed(make, runs, in_place=False)),
    "rank_stopped": (30, lambda make, runs: rank_hangs(make, runs, stop_rank)),
    "rank_hung": (30, lambda make, runs: rank_hangs(make, runs, hang_rank)),
    "node_killed_spare": (30, lambda make, runs: node_lost(make, runs, True, kill_all)),
    "node_cut_spare": (30, lambda make, runs: node_lost(make, runs, True, cut)),
    "node_killed_shared_spare": (30, lambda make, runs: shared_spare_taken(make, runs, False, kill_all)),
    "node_killed_lent_spare": (30, lambda make, runs: shared_spare_taken(make, runs, True, kill_all)),
    "node_cut_shared_spare": (30, lambda make, runs: shared_spare_taken(make, runs, False, cut)),
    "node_cut_lent_spare": (30, lambda make, runs: shared_spare_taken(make, runs, True, cut)),
    "node_killed_shrink": (30, lambda make, runs: node_lost(make, runs, False, kill_all)),
    "node_cut_shrink": (30, lambda make, runs: node_lost(make, runs, False, cut)),
}
OF_NODES = ("node_",)


def faults_in_turn(measure, programs, runs):
    """Faults of one kind, by build."""
    rounds = machine.Rounds()
    block = FAULTS_IN_TURN if len(programs) > 1 else runs
    for first in range(0, runs, block):
        rounds.take({name: functools.partial(measure, functools.partial(Cluster, None, programs=folder),
                                             min(block, runs - first)) for name, folder in programs.items()})
    return {name: [fault for faults in blocks for fault in faults] for name, blocks in rounds.values.items()}


def report(measured):
    summaries = {name: summarise(faults) for name, faults in measured.items()}
    if len(summaries) == 1:
        return summaries["muster"]
    return {**builds.difference({name: [fault.next_step for fault in faults] for name, faults in measured.items()}),
            **summaries}


def summarise(measured):
    def figures(name):
        known = [getattr(m, name) for m in measured if getattr(m, name) is not None]
        return machine.summary(known) if known else None

    def stage(name):
        known = [m.stages[name] for m in measured if m.stages.get(name) is not None]
        return round(statistics.median(known), 3) if known else None
    return {"next_step": figures("next_step"), "decided": figures("decided"),
            "out_of_collectives": figures("out"),
            "slowest": [{"next_step_s": round(m.next_step, 3), "number": n, "tier": m.tier, **m.stages}
                        for n, m in sorted(enumerate(measured), key=lambda e: -e[1].next_step)[:3]],
            "slow_timelines": {n: m.timeline for n, m in enumerate(measured) if m.timeline},
            "stages_median_s": {name: stage(name)
                                for name in ("detect", "abort", "reform", "load", "first_step")},
            "tiers": collections.Counter(m.tier for m in measured),
            "lost_steps": collections.Counter(m.lost_steps for m in measured),
            "causes": collections.Counter(m.cause for m in measured).most_common(4)}


def median_step(cluster, snapshot_every):
    spec = cluster.train_job(steps=STALL_STEPS, every=10**5, snapshot={"every": snapshot_every}, fsdp={})
    job = cluster.submit(spec)
    if cluster.wait(job, timeout=300) != 0:
        raise AssertionError(cluster.describe(job))
    steps = read_metrics(cluster.output(job))
    return statistics.median(entry["step_seconds"] for step, entry in steps.items() if step > 20)


def snapshot_stall(runs):
    """Medians of steps with and without snapshots, in turn; the first pair warms up."""
    cluster = Cluster(None, nodes=2)
    try:
        pairs = [(median_step(cluster, 1), median_step(cluster, 0)) for _ in range(runs + 1)][1:]
    finally:
        cluster.close()
    return {"runs": runs, "step_with_s": [round(on, 5) for on, _ in pairs],
            "step_without_s": [round(off, 5) for _, off in pairs],
            "stall_share_median": round(statistics.median(on / off - 1 for on, off in pairs), 4)}


def false_verdicts(minutes, busy_per_core):
    """Attempts that ended and nodes that were lost although nothing was wrong but the load."""
    cluster = Cluster(None, nodes=2)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(busy_per_core * (os.cpu_count() or 1))]
    try:
        job = cluster.submit(cluster.train_job(steps=10**6, every=50, fsdp={}))
        cluster.wait_for_step(job, 1)
        loads = []
        began = time.monotonic()
        waited = machine.seconds_some_task_waited()
        while time.monotonic() < began + minutes * 60:
            time.sleep(10)
            loads.append(os.getloadavg()[0])
        pressure = (machine.seconds_some_task_waited() - waited) / (time.monotonic() - began)
        got = cluster.get(job)
        kinds = collections.Counter(event["kind"] for event in cluster.json("events"))
        return {"minutes": minutes, "steps": got["step"],
                "load_1min": {"least": min(loads), "median": statistics.median(loads)},
                "share_of_time_some_task_waited_for_a_cpu": round(pressure, 3),
                "false_verdicts": len(got["attempts"]) - 1 + kinds["node_lost"],
                "causes": [a["cause"] for a in got["attempts"] if a["cause"]],
                "suspicions_taken_back": kinds["node_suspect"], "stragglers_told": kinds["straggler"]}
    finally:
        for process in busy:
            process.kill()
            process.wait()
        cluster.close()


def draw(result, path):
    pairs = []
    for ours, peers, what in CHARTED:
        mine, other = result["faults"].get(ours), result.get("torchrun", {}).get(peers, {})
        if mine and "median_s" in other:
            pairs.append((what, [("Muster", mine["next_step"]["median_s"]), ("torchrun", other["median_s"])]))
    if not pairs:
        raise SystemExit("--chart needs kinds that --kinds and --peer-kinds have both measured; see CHARTED")
    chart.write(path, "Seconds from a fault until the next finished step", pairs,
                f"Medians of one run on {result['machine']['cores']} cores; {result['machine']['cpu']}; tests/bench/recovery_bench.py --chart")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", type=lambda text: [k for k in text.split(",") if k],
                        default=list(KINDS), help="of " + ", ".join(KINDS))
    parser.add_argument("--runs", type=int, help="faults of each kind [200 of ranks killed, else 30]")
    parser.add_argument("--peer-runs", type=int, default=0, help="faults of each kind on torchrun")
    parser.add_argument("--peer-kinds", type=lambda text: text.split(","),
                        default=list(elastic_peer.KINDS), help="of " + ", ".join(elastic_peer.KINDS))
    parser.add_argument("--stall-runs", type=int, default=0)
    parser.add_argument("--coordinator-runs", type=int, default=0)
    parser.add_argument("--adapter-runs", type=int, default=0, help="ranks of a QLoRA job killed")
    parser.add_argument("--mixture-runs", type=int, default=0, help="ranks of a mixture of experts killed")
    parser.add_argument("--gpu-runs", type=int, default=0, help="ranks killed that share a GPU")
    parser.add_argument("--overload-minutes", type=float, default=0)
    builds.add_option(parser)
    parser.add_argument("--chart", type=pathlib.Path, help="draw the faults that torchrun had as well, as SVG")
    parser.add_argument("--busy-per-core", type=int, default=2, help="processes beside it [2]")
    options = parser.parse_args()
    for kind in (*options.kinds, *options.peer_kinds):
        if kind not in KINDS and kind not in elastic_peer.KINDS:
            parser.error(f"unknown kind {kind}")
    return options


def main():
    options = parse_options()
    programs = builds.programs(options.beside)
    result = {"benchmark": "fault_to_next_step", "model": "tiny", "revision": machine.revision(ROOT),
              "programs": builds.versions(programs), "machine": machine.describe(), "faults": {}, "not_measured": []}
    for kind in options.kinds:
        runs, measure = KINDS[kind]
        if kind.startswith(OF_NODES) and not can_have_namespaces():
            result["not_measured"].append(kind)
            continue
        found = result["faults"][kind] = report(faults_in_turn(measure, programs, options.runs or runs))
        print(kind, json.dumps(found.get("difference") or found["next_step"]), file=sys.stderr, flush=True)
    if options.coordinator_runs:
        result["coordinator_killed_with_1000_jobs"] = coordinator_killed(
            programs, options.coordinator_runs)
    if options.adapter_runs:
        result["adapters_killed_in_place"] = adapters_killed(options.adapter_runs)
    if options.mixture_runs:
        result["mixture_killed_in_place"] = mixtures_killed(options.mixture_runs)
    if options.gpu_runs:
        result["gpu_rank_killed_in_place"] = gpu_rank_killed(options.gpu_runs)
    if options.peer_runs:
        result["torchrun"] = {kind: elastic_peer.measure(kind, options.peer_runs)
                              for kind in options.peer_kinds}
    if options.stall_runs:
        result["snapshot_stall"] = snapshot_stall(options.stall_runs)
    if options.overload_minutes:
        result["overload"] = false_verdicts(options.overload_minutes, options.busy_per_core)
    print(json.dumps(result, indent=1))
    if options.chart:
        draw(result, options.chart)


if __name__ == "__main__":
    main()

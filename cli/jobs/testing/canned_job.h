// A job with one recovery behind it, for the tests of what the CLI shows.
#pragma once

#include "muster/v1/client_api.pb.h"

namespace muster {

inline v1::Job CannedJob() {
  v1::Job job;
  job.set_id("7f3a9c1e2b");
  job.set_name("llama-chat");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_generation(2);
  job.set_step(120);
  job.set_max_steps(200);
  job.set_loss(2.5);
  job.set_loss_at_start(5.5);
  job.set_tokens_per_second(1234.4);
  job.set_eta_seconds(65);
  job.set_output_dir("/jobs/out");
  job.set_priority(50);
  job.set_submitted_unix_ms(1'700'000'000'000);
  job.set_started_unix_ms(1'700'000'001'000);
  job.set_restarts(1);
  job.set_world_size(2);
  for (int r = 0; r < 2; ++r) {
    auto* rank = job.add_ranks();
    rank->set_rank(r);
    rank->set_node(r == 0 ? "node-1" : "node-2");
    rank->set_pid(100 + r);
    rank->set_state(v1::RANK_STATE_RUNNING);
    auto* progress = job.add_progress();
    progress->set_rank(r);
    progress->set_step(120);
    progress->set_phase(v1::TRAIN_PHASE_FORWARD);
  }
  auto* first = job.add_attempts();
  first->set_generation(1);
  first->set_started_unix_ms(1'700'000'001'000);
  first->set_ended_unix_ms(1'700'000'041'000);
  first->set_state("ended");
  first->set_cause("rank 1 on node-2 was killed by SIGKILL");
  first->set_failed_rank(1);
  first->set_failed_node("node-2");
  first->set_resumed_step(0);
  first->set_last_step(87);
  first->set_lost_steps(7);
  first->add_log_tail("step 87 loss 3.1");
  first->set_tier("launch");
  first->set_cause_kind("rank_killed");
  first->set_world_size(2);
  first->add_nodes("node-1");
  first->add_nodes("node-2");
  first->set_resumed_from("start");
  auto* card = first->mutable_card();
  card->set_what("SIGKILL");
  card->set_step(87);
  card->set_phase("backward");
  card->set_micro_batch(3);
  card->set_last_collective("world: 812 enqueued, 811 completed");
  card->add_facts("its node had 40 MiB free");
  card->set_advice("Look into the kernel log of node-2.");
  auto* second = job.add_attempts();
  second->set_generation(2);
  second->set_started_unix_ms(1'700'000'041'050);
  second->set_state("running");
  second->set_failed_rank(-1);
  second->set_resumed_step(80);
  second->set_last_step(120);
  second->set_tier("in_place");
  second->set_world_size(2);
  second->add_nodes("node-1");
  second->add_nodes("node-2");
  second->set_resumed_from("checkpoint");
  second->add_notes("checkpoint step-00000085-g1 refused: rank 1: checksum differs");
  auto* seconds = second->mutable_seconds();
  seconds->set_detect(0.01);
  seconds->set_abort(0.03);
  seconds->set_reform(0.31);
  seconds->set_load(0.2);
  seconds->set_first_step(0.16);
  auto* checkpoint = job.add_checkpoints();
  checkpoint->set_step(80);
  checkpoint->set_generation(1);
  checkpoint->set_directory("step-00000080-g1");
  checkpoint->set_committed_unix_ms(1'700'000'039'000);
  checkpoint->set_world_size(2);
  for (int r = 0; r < 2; ++r) {
    checkpoint->add_shards()->set_rank(r);
    checkpoint->mutable_shards(r)->set_bytes(3 << 20);
  }
  return job;
}

}  // namespace muster

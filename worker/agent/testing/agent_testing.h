// Shared by tests of Agent: a job of two ranks, brought to the state that a test begins with. One
// thread.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "worker/agent/agent.h"

namespace muster::worker {

inline const JobId kJob{"00c0ffee00"};

// The effects of one kind, in order.
template <typename T>
std::vector<T> Of(const Effects& effects) {
  std::vector<T> found;
  for (const Effect& effect : effects)
    if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
  return found;
}

template <typename T>
std::vector<T> Sent(const Effects& effects) {
  std::vector<T> found;
  for (const SendToCoordinator& send : Of<SendToCoordinator>(effects))
    if (const T* one = std::get_if<T>(&send.message)) found.push_back(*one);
  return found;
}

template <typename T>
std::vector<T> Commands(const Effects& effects) {
  std::vector<T> found;
  for (const SendToGuardian& send : Of<SendToGuardian>(effects))
    if (const T* one = std::get_if<T>(&send.command)) found.push_back(*one);
  return found;
}

class AgentTest : public testing::Test {
 protected:
  static Prepare MakePrepare(Generation generation) {
    return {.job = kJob,
            .job_name = "chat",
            .generation = generation,
            .spec_yaml = "spec",
            .output_dir = "/w/out",
            .ranks = {{0, 0}, {1, 1}},
            .hosts_master = true,
            .master_bind_address = "127.0.0.1"};
  }
  static JobSpec TrainJob() {
    JobSpec spec;
    spec.train = TrainSpec{};
    return spec;
  }
  static Launch MakeLaunch(Generation generation) {
    return {.job = kJob, .generation = generation, .master_port = 4711, .world_size = 2};
  }

  Effects Event(const GuardianEvent& event) { return agent_.Handle(GuardianReported{kJob, event}); }

  // The guardian's first messages when it has no state.
  Effects GuardianUp(Generation newest = 0) {
    Event(GuardianHello{.pid = 7, .job = kJob.value, .generation = newest});
    return Event(GuardianSynced{});
  }
  void Prepare1() {
    agent_.Handle(MakePrepare(1));
    GuardianUp();
    agent_.Handle(PreflightDone{.job = kJob, .generation = 1, .result = {.spec = TrainJob()}});
    Event(GuardianPrepared{.generation = 1, .master_port = 4711});
  }
  void Run1() {
    Prepare1();
    agent_.Handle(MakeLaunch(1));
    agent_.Handle(LaunchStaged{MakeLaunch(1), OkStatus()});
    Event(GuardianRankStarted{.generation = 1, .rank = 0, .pid = 100});
    Event(GuardianRankStarted{.generation = 1, .rank = 1, .pid = 101});
  }
  HostedGeneration Hosted() const {
    const auto hosted = agent_.Hosted();
    return hosted.size() == 1 ? hosted[0] : HostedGeneration{};
  }

  Agent agent_{LaunchContext{.trainer_path = "/opt/muster-trainer"}, "/jobs"};
};

}  // namespace muster::worker

#include "cli/machine/machine_advice.h"

#include <gtest/gtest.h>

#include <functional>

namespace muster {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

MachineFacts Sound() {
  MachineFacts facts;
  facts.kernel = "6.1.0-13-amd64";
  facts.memory_bytes = 64 * kGiB;
  facts.memory_available_bytes = 60 * kGiB;
  facts.cpus = facts.usable_cpus = 8;
  facts.open_files = 1 << 20;
  facts.map_count = 65530;
  facts.huge_pages = "madvise";
  facts.unix_seconds = 1'800'000'000;
  facts.first_port = 32768;
  facts.last_port = 60999;
  for (DirectoryFacts* dir : {&facts.state, &facts.temporary, &facts.shared_memory})
    *dir = {.path = "/d", .error = "", .free_bytes = 9 * kGiB, .total_bytes = 9 * kGiB};
  facts.own_version = "1.0";
  facts.own_path = facts.path_muster = "/usr/bin/muster";
  facts.programs = {{.name = "muster-worker", .version = "1.0", .error = ""}};
  facts.trainer = {.name = "muster-trainer", .version = "1.0", .error = ""};
  return facts;
}

Finding Of(const MachineFacts& facts, const std::string& check) {
  for (const Finding& finding : JudgeMachine(facts))
    if (finding.check == check) return finding;
  ADD_FAILURE() << "no check " << check;
  return {};
}

TEST(MachineAdvice, ASoundMachineHasNoTrouble) {
  for (const Finding& finding : JudgeMachine(Sound())) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.check << ": " << finding.what;
    EXPECT_TRUE(finding.change.empty() && finding.command.empty()) << finding.check;
  }
}

// Troubles that doctor_test.py cannot plant on every machine.
TEST(MachineAdvice, EachTroubleIsFoundByName) {
  const struct {
    const char* check;
    Verdict verdict;
    const char* says;
    std::function<void(MachineFacts&)> plant;
  } rows[] = {
      {"kernel", Verdict::kFail, "close_range", [](auto& facts) { facts.kernel = "5.4.0"; }},
      {"kernel", Verdict::kWarn, "huge pages", [](auto& facts) { facts.kernel = "5.15.0-91"; }},
      {"containers", Verdict::kWarn, "too old", [](auto& facts) { facts.kernel = "5.10.0-8"; }},
      {"containers", Verdict::kWarn, "apparmor_restrict_unprivileged_userns = 1; jobs",
       [](auto& facts) {
         facts.namespaces_setting = "kernel.apparmor_restrict_unprivileged_userns = 1";
       }},
      {"memory", Verdict::kWarn, "1.0 GiB of 64.0 GiB",
       [](auto& facts) { facts.memory_available_bytes = kGiB; }},
      {"memory", Verdict::kWarn, "allows 1.0 GiB",
       [](auto& facts) { facts.groups.memory_bytes = kGiB; }},
      {"cpus", Verdict::kWarn, "the time of 2.5", [](auto& facts) { facts.groups.cpus = 2.5; }},
      {"processes", Verdict::kWarn, "at most 100", [](auto& facts) { facts.processes = 100; }},
      {"processes", Verdict::kWarn, "at most 99",
       [](auto& facts) {
         facts.processes = 100;
         facts.groups.processes = 99;
       }},
      {"locked-memory", Verdict::kWarn, "64.0 KiB",
       [](auto& facts) {
         facts.has_rdma = true;
         facts.locked_bytes = 64 << 10;
       }},
      {"cluster-directory", Verdict::kWarn, "NFS",
       [](auto& facts) { facts.state.network_file_system = "NFS"; }},
      {"cluster-directory", Verdict::kWarn, "without locks",
       [](auto& facts) { facts.state.locks = false; }},
      {"clock", Verdict::kFail, "1970", [](auto& facts) { facts.unix_seconds = 60; }},
      {"clock", Verdict::kWarn, "no time server", [](auto& facts) { facts.clock_in_step = false; }},
      {"trainer", Verdict::kWarn, "libc10.so",
       [](auto& facts) { facts.trainer.error = "exit code 127: libc10.so"; }},
      {"gpus", Verdict::kFail, "2 of NVIDIA", [](auto& facts) { facts.nvidia_gpus = 2; }},
  };
  for (const auto& row : rows) {
    MachineFacts facts = Sound();
    row.plant(facts);
    const Finding found = Of(facts, row.check);
    EXPECT_EQ(found.verdict, row.verdict) << row.check << ": " << found.what;
    EXPECT_NE(found.what.find(row.says), std::string::npos) << row.check << ": " << found.what;
    EXPECT_FALSE(found.change.empty()) << row.check;
  }
}

TEST(MachineAdvice, ALimitIsNoTroubleWhereItIsLarge) {
  MachineFacts facts = Sound();
  facts.groups = {.memory_bytes = 32 * kGiB, .cpus = 8.0, .processes = 10'000};
  facts.has_rdma = true;
  for (const Finding& finding : JudgeMachine(facts))
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.check << ": " << finding.what;
}

TEST(MachineAdvice, AFirewallIsPassedByTheAddressesFamily) {
  MachineFacts facts = Sound();
  const auto command = [&](const char* ip) {
    facts.peers = {{.address = "node8:22", .error = "no answer within 3 s", .ip = ip}};
    return Of(facts, "peer").command;
  };
  const std::string four = command("10.0.0.8"), six = command("fe80::8%eth0");
  EXPECT_NE(four.find("/^(inet|ip) /"), std::string::npos) << four;
  EXPECT_NE(four.find(R"(" ip " (/hook input/ ? "saddr" : "daddr") " 10.0.0.8 accept")"),
            std::string::npos)
      << four;
  EXPECT_NE(six.find("/^(inet|ip6) /"), std::string::npos) << six;
  EXPECT_NE(six.find(R"( " fe80::8 accept")"), std::string::npos) << six;
  EXPECT_EQ(command(""), "") << "the name has no address";
}

}  // namespace
}  // namespace muster

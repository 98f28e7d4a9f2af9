#include "common/slurm/doctor_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace muster::slurm {
namespace {

NodeProbe Probe(const std::string& node) {
  NodeProbe probe;
  probe.node = node;
  probe.step = {"n1", "n2"};
  probe.address = "10.0.0.1";
  probe.made_exclusive_file = node == "n1";
  probe.made_link = node == "n2";
  probe.clock_offset = {{node == "n1" ? "n2" : "n1", node == "n1" ? 40 : -41}};
  probe.slurm_gpus = 2;
  probe.visible_gpus = 2;
  probe.slurm_cpus = 4;
  probe.usable_cpus = 4;
  probe.temporary = "/tmp";
  probe.temporary_free_mib = 1000;
  return probe;
}

Finding Of(const std::vector<Finding>& findings, const std::string& check) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& finding) { return finding.check == check; });
  EXPECT_NE(found, findings.end()) << check;
  return found == findings.end() ? Finding{} : *found;
}

Finding WithSecond(const NodeProbe& second, const std::string& check) {
  return Of(JudgeNodes(2, {Probe("n1"), second}), check);
}

TEST(DoctorOfNodes, FindsNothingInSoundOnes) {
  const auto findings = JudgeNodes(2, {Probe("n1"), Probe("n2")});
  EXPECT_EQ(findings.size(), 8u);
  for (const Finding& finding : findings)
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.check << ": " << finding.what;
}

TEST(DoctorOfNodes, NamesTheNodeAndWhatIsWrongThere) {
  struct Row {
    const char* check;
    Verdict verdict;
    void (*spoil)(NodeProbe&);
  };
  const Row rows[] = {
      {"shared-path", Verdict::kFail, [](NodeProbe& p) { p.shared_error = "no such directory"; }},
      {"shared-path", Verdict::kFail, [](NodeProbe& p) { p.unseen = {"n1"}; }},
      {"ports", Verdict::kFail, [](NodeProbe& p) { p.unreachable = {"n1"}; }},
      {"gpu-binding", Verdict::kFail, [](NodeProbe& p) { p.visible_gpus = 1; }},
      {"gpu-binding", Verdict::kFail, [](NodeProbe& p) { p.visible_gpus.reset(); }},
      {"gpu-binding", Verdict::kFail, [](NodeProbe& p) { p.device_files = 1; }},
      {"cpus", Verdict::kWarn, [](NodeProbe& p) { p.usable_cpus = 1; }},
      {"temporary", Verdict::kFail, [](NodeProbe& p) { p.temporary_free_mib = 3; }},
      {"clocks", Verdict::kWarn, [](NodeProbe& p) { p.clock_offset["n1"] = -1500; }},
      {"clocks", Verdict::kFail, [](NodeProbe& p) { p.clock_offset["n1"] = 31'000; }}};
  for (const Row& row : rows) {
    NodeProbe probe = Probe("n2");
    row.spoil(probe);
    const Finding finding = WithSecond(probe, row.check);
    EXPECT_EQ(finding.verdict, row.verdict) << row.check;
    EXPECT_NE(finding.what.find("n2"), std::string::npos) << finding.what;
    EXPECT_NE(finding.change, "") << row.check;
  }
}

TEST(DoctorOfNodes, AFileOfOneMakerMustHaveOneMaker) {
  NodeProbe probe = Probe("n2");
  probe.made_exclusive_file = true;
  EXPECT_EQ(WithSecond(probe, "exclusive-files").verdict, Verdict::kFail);
  probe = Probe("n2");
  probe.made_link = false;
  EXPECT_EQ(WithSecond(probe, "exclusive-files").verdict, Verdict::kFail);
}

TEST(DoctorOfNodes, MissesTheOnesThatDoNotAnswer) {
  const Finding silent = Of(JudgeNodes(2, {Probe("n2")}), "nodes");
  EXPECT_EQ(silent.verdict, Verdict::kFail);
  EXPECT_NE(silent.what.find("1 of 2 nodes answer; silent: n1"), std::string::npos) << silent.what;
  const auto none = JudgeNodes(2, {});
  EXPECT_EQ(none.size(), 1u);
  EXPECT_EQ(none.front().verdict, Verdict::kFail);
}

TEST(DoctorOfNodes, ReadsWhatTheNodesPrintAndNothingElse) {
  NodeProbe first = Probe("n1"), second = Probe("n2");
  first.shared_error = "a \"quoted\"\nline";
  second.visible_gpus.reset();
  const std::string text = "srun: job 7 queued\n" + ProbeLine(first) +
                           "\n{\"muster_probe\":1,\"x\n" + ProbeLine(second) + "\n{}\n";
  EXPECT_EQ(ParseProbes(text), (std::vector<NodeProbe>{first, second}));
  EXPECT_TRUE(ParseProbes("").empty());
  EXPECT_TRUE(ParseProbes("{\"muster_probe\":1,\"node\":7}").empty());
}

}  // namespace
}  // namespace muster::slurm

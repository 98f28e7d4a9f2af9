#include "common/slurm/hostlist.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <sstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/run_child.h"

namespace muster::slurm {
namespace {

using Names = std::vector<std::string>;

Names Expanded(const std::string& list) {
  const auto names = ExpandHostlist(list);
  EXPECT_TRUE(names.ok()) << names.status().ToString();
  return names.ok() ? *names : Names();
}

std::string ErrorOf(const std::string& list, std::size_t max_hosts = kMaxHosts) {
  const auto names = ExpandHostlist(list, max_hosts);
  return names.ok() ? "no error" : names.status().ToString();
}

TEST(Hostlist, ExpandsRangesPaddingBracketsAndSuffixes) {
  EXPECT_EQ(Expanded("login"), Names({"login"}));
  EXPECT_EQ(Expanded("n[1-3,7],m4"), Names({"n1", "n2", "n3", "n7", "m4"}));
  EXPECT_EQ(Expanded("n[08-11]"), Names({"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(Expanded("n[9-10,010]"), Names({"n9", "n10", "n010"}));
  EXPECT_EQ(Expanded("r[0-1]n[1-2]"), Names({"r0n1", "r0n2", "r1n1", "r1n2"}));
  EXPECT_EQ(Expanded("gpu-[1,2]-ib.x"), Names({"gpu-1-ib.x", "gpu-2-ib.x"}));
  EXPECT_EQ(Expanded("[3-4]"), Names({"3", "4"}));
  EXPECT_EQ(Expanded("n[2,2]"), Names({"n2", "n2"}));
}

TEST(Hostlist, ANameIsNotLongerThanANamesLimitWithItsNumbers) {
  const std::string letters(254, 'a');
  EXPECT_EQ(Expanded("[1-9]" + letters).size(), 9u);
  EXPECT_NE(ErrorOf("[1-10]" + letters).find("column 1: a node's name has 255 characters at most"),
            std::string::npos);
  // Or each name would be as long as the text.
  std::string long_list = "[0-65535]";
  for (int i = 0; i < 4000; ++i) long_list += letters + "[0]";
  EXPECT_NE(ErrorOf(long_list).find("255 characters at most"), std::string::npos);
}

TEST(Hostlist, NamesTheColumnOfWhatIsWrong) {
  EXPECT_NE(ErrorOf("").find("column 1: expected a node's name"), std::string::npos);
  EXPECT_NE(ErrorOf("a,,b").find("column 3: expected a node's name"), std::string::npos);
  EXPECT_NE(ErrorOf("a,").find("column 3"), std::string::npos);
  EXPECT_NE(ErrorOf("n[1-3").find("column 6: expected ',' or ']'"), std::string::npos);
  EXPECT_NE(ErrorOf("n[1-x]").find("column 5: expected a number"), std::string::npos);
  EXPECT_NE(ErrorOf("n[]").find("column 3: expected a number"), std::string::npos);
  EXPECT_NE(ErrorOf("n[1,7-5]").find("column 5: the range ends below its begin"),
            std::string::npos);
  EXPECT_NE(ErrorOf("n1]").find("column 3: a node's name has"), std::string::npos);
  EXPECT_NE(ErrorOf("n1 n2").find("column 3"), std::string::npos);
  EXPECT_NE(ErrorOf("n[1234567890123456789]").find("column 3: a number has 18 digits at most"),
            std::string::npos);
  EXPECT_NE(ErrorOf(std::string(300, 'n')).find("column 1: a node's name has 255"),
            std::string::npos);
}

TEST(Hostlist, IsRefusedBeforeItCostsMemory) {
  EXPECT_EQ(Expanded("n[0-65535]").size(), 65536u);
  const std::string words = "has more than 65536 nodes";
  EXPECT_NE(ErrorOf("n[0-65536]").find(words), std::string::npos);
  EXPECT_NE(ErrorOf("n[0-999999999999999999]").find(words), std::string::npos);
  EXPECT_NE(ErrorOf("[0-9999][0-9999][0-9999][0-9999]").find(words), std::string::npos);
  EXPECT_NE(ErrorOf("a,n[1-4]", 4).find("has more than 4 nodes"), std::string::npos);
  EXPECT_EQ(ErrorOf("a,n[1-3]", 4), "no error");
}

TEST(Hostlist, IsPrintedInTheOrderOfTheNames) {
  EXPECT_EQ(CompressHostlist({}), "");
  EXPECT_EQ(CompressHostlist({"n1"}), "n1");
  EXPECT_EQ(CompressHostlist({"n1", "n2", "n4", "m1", "n5"}), "n[1-2,4],m1,n5");
  EXPECT_EQ(CompressHostlist({"n3", "n2", "n1"}), "n[3,2,1]");
  EXPECT_EQ(CompressHostlist({"n1", "n01"}), "n[1,01]");
  EXPECT_EQ(CompressHostlist({"n09", "n10", "n099", "n100"}), "n[09-10,099-100]");
  EXPECT_EQ(CompressHostlist({"a", "b-ib"}), "a,b-ib");
}

// Names as clusters have them, neighbours more often than not.
Names RandomNames(std::mt19937& random) {
  static const Names kPrefixes = {"n", "gpu-a", "r0_b", "x1y"};
  Names names;
  int number = 0;
  for (unsigned count = 1 + random() % 12; count > 0; --count) {
    number = random() % 3 == 0 ? static_cast<int>(random() % 1200) : number + 1;
    std::string digits = std::to_string(number);
    const std::size_t width = random() % 4 == 0 ? 4 : 1;
    if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
    names.push_back(kPrefixes[random() % 5 == 0 ? random() % 4 : 0] + digits);
    if (random() % 9 == 0) names.push_back("login" + std::string(random() % 2, 's'));
  }
  return names;
}

TEST(Hostlist, IsExpandedToTheNamesThatItWasPrintedFrom) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const Names names = RandomNames(random);
    const std::string list = CompressHostlist(names);
    EXPECT_EQ(Expanded(list), names) << list;
  }
}

// Slurm's own program, which needs a configuration but no running Slurm.
class Scontrol {
 public:
  Scontrol() {
    auto program = FindProgram("scontrol", "/usr/local/bin:/usr/bin:/bin", "/");
    if (program.ok()) program_ = *program;
    const Status written = WriteFileAtomically(
        dir_.path() + "/slurm.conf",
        "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n[1-4]\nPartitionName=p Nodes=ALL\n");
    EXPECT_TRUE(written.ok()) << written.ToString();
  }

  bool found() const { return !program_.empty(); }

  std::string Show(const std::string& what, const std::string& list) const {
    RunChildOptions options;
    options.spawn.argv = {program_, "show", what, list};
    options.spawn.environment = {"SLURM_CONF=" + dir_.path() + "/slurm.conf"};
    options.max_output = 1 << 16;
    const auto outcome = RunChild(options);
    EXPECT_TRUE(outcome.ok() && outcome->ok());
    return outcome.ok() ? outcome->output : "";
  }

 private:
  TempDirForTest dir_;
  std::string program_;
};

TEST(Hostlist, IsReadAndPrintedAsByScontrol) {
  const Scontrol scontrol;
  if (!scontrol.found()) GTEST_SKIP() << "no scontrol on this machine";
  std::mt19937 random(11);
  for (int round = 0; round < 8; ++round) {
    const Names names = RandomNames(random);
    std::string joined;
    for (const std::string& name : names) joined += (joined.empty() ? "" : ",") + name;
    const std::string list = CompressHostlist(names);
    EXPECT_EQ(scontrol.Show("hostlist", joined), list + "\n");
    Names theirs;
    std::istringstream lines(scontrol.Show("hostnames", list));
    for (std::string line; std::getline(lines, line);) theirs.push_back(line);
    EXPECT_EQ(theirs, names) << list;
  }
  EXPECT_EQ(scontrol.Show("hostnames", "r[0-1]n[08-10]"),
            "r0n08\nr0n09\nr0n10\nr1n08\nr1n09\nr1n10\n");
}

TEST(Counts, AreExpanded) {
  EXPECT_EQ(*ExpandCounts("1"), std::vector<int>({1}));
  EXPECT_EQ(*ExpandCounts("2(x3),1"), std::vector<int>({2, 2, 2, 1}));
  for (const char* bad : {"", "x", "2(x", "2(x0)", "2(x3", "2(x3)1", "1,", "-1"})
    EXPECT_EQ(ExpandCounts(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  EXPECT_EQ(ExpandCounts("1(x9)", 8).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace muster::slurm

#include "worker/fabric/fake_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Result<std::vector<NodeDevice>> Parse(const std::string& yaml) {
  return ParseFakeGpus(yaml, "gpus.yaml", "n1");
}

TEST(FakeGpus, EachEntryMakesAsManyAsItSays) {
  const auto parsed = Parse(
      "- {count: 2, kind: NVIDIA H100 80GB HBM3, memory: 80GB, numa: 1, nvlink: \"0\"}\n"
      "- {uuid: GPU-1}\n");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->size(), 3u);
  EXPECT_EQ((*parsed)[1], (NodeDevice{.device = {.id = "FAKE-n1-1",
                                                 .kind = "NVIDIA H100 80GB HBM3",
                                                 .memory_bytes = 80'000'000'000,
                                                 .numa_node = 1,
                                                 .link_domain = "n1/0",
                                                 .fake = true},
                                      .cuda_name = "FAKE-n1-1",
                                      .gpu = "FAKE-n1-1"}));
  EXPECT_EQ((*parsed)[2].device, (Device{.id = "GPU-1", .fake = true}));
}

TEST(FakeGpus, AFileThatIsWrongIsRefusedWithItsLine) {
  const auto refused = [](const std::string& yaml) { return Parse(yaml).status().message(); };
  EXPECT_THAT(refused(""), StartsWith("gpus.yaml:1: expected one list of GPUs"));
  EXPECT_THAT(refused("count: 8\n"), StartsWith("gpus.yaml:1: expected one list of GPUs"));
  EXPECT_THAT(refused("- {count: 1}\n- 8\n"), StartsWith("gpus.yaml:2: expected a map of keys"));
  EXPECT_THAT(refused("- count: 1\n  knd: H100\n"), StartsWith("gpus.yaml:2: knd: "));
  EXPECT_THAT(refused("- {count: 0}\n"), StartsWith("gpus.yaml:1: count: "));
  EXPECT_THAT(refused("- {memory: much}\n"), StartsWith("gpus.yaml:1: memory: "));
  EXPECT_THAT(refused("- {count: 2, uuid: GPU-1}\n"), HasSubstr("count must be 1"));
  EXPECT_THAT(refused("- {uuid: a/b}\n"), HasSubstr("uuid: must be 1 to 63 letters"));
  EXPECT_THAT(refused("- {uuid: GPU-1}\n- {uuid: GPU-1}\n"),
              StartsWith("gpus.yaml:2: uuid: GPU-1 is given twice"));
  EXPECT_THAT(refused("- {count: 60}\n- {count: 5}\n"),
              StartsWith("gpus.yaml:2: count: makes more than the 64 GPUs"));
  EXPECT_THAT(refused("- {count: 1\n"), HasSubstr("is no valid YAML"));
}

}  // namespace
}  // namespace muster::worker

#include "common/base/hub_id.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const std::string kCommit(40, 'a');

TEST(HubId, HasAnOrganisationANameAndPerhapsARevision) {
  EXPECT_EQ(ParseHubId("meta-llama/Llama-3.2-1B"), (HubId{"meta-llama/Llama-3.2-1B", "main"}));
  EXPECT_EQ(ParseHubId("Qwen/Qwen3-0.6B@refs/pr/7"), (HubId{"Qwen/Qwen3-0.6B", "refs/pr/7"}));
  EXPECT_EQ(ParseHubId("a/b@" + kCommit)->revision, kCommit);
}

TEST(HubId, IsNoPath) {
  for (const char* text : {"", "model", "a/b/c", "/a/b", "../b", "a/..", "./a", "a/", "/b", "a b/c",
                           "a/b@", "a/b@../../x", "a/b@/x", "a--b/c", "~/model", "a/b@x//y"}) {
    EXPECT_FALSE(ParseHubId(text)) << text;
  }
}

}  // namespace
}  // namespace muster

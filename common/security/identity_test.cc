#include "common/security/identity.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace muster {
namespace {

TEST(Identity, IsTheSameAfterItsUri) {
  for (const Role role : kRoles) {
    const Identity identity{role, "n-7.rack_2", "lab"};
    const auto read = ParseIdentityUri(IdentityUri(identity));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, identity);
  }
  EXPECT_EQ(IdentityUri({Role::kNode, "n7", "lab"}), "muster://lab/node/n7");
}

TEST(Identity, HasADistinctWordForEachRole) {
  std::set<std::string_view> words;
  for (const Role role : kRoles) {
    words.insert(RoleWord(role));
    EXPECT_EQ(*ParseRole(RoleWord(role)), role);
    EXPECT_GT(DefaultLifetime(role), Duration::zero());
  }
  EXPECT_EQ(words.size(), std::size(kRoles));
  EXPECT_FALSE(ParseRole("Node").ok());
  EXPECT_FALSE(ParseRole("").ok());
}

TEST(Identity, ServesUnderANameOnlyWhereTheRoleServes) {
  EXPECT_EQ(ServerName(Role::kCoordinator), "coordinator.muster");
  EXPECT_EQ(ServerName(Role::kNode), "node.muster");
  EXPECT_EQ(ServerName(Role::kAdmin), "");
  EXPECT_EQ(ServerName(Role::kScraper), "");
}

TEST(Identity, IsRefusedWhenItCouldBeReadInTwoWays) {
  for (const char* uri :
       {"", "muster://", "muster:///node/n7", "muster://lab/node/", "muster://lab/node",
        "muster://lab/node/n7/x", "muster://lab//n7", "muster://lab/root/n7", "http://lab/node/n7",
        "muster://lab/node/..", "muster://lab/node/n 7", "muster://lab/node/n7\n",
        "muster://lab/node/n7,URI:muster://lab/admin/a", "muster://lab/NODE/n7",
        " muster://lab/node/n7", "muster://lab/node/n%37"})
    EXPECT_EQ(ParseIdentityUri(uri).status().code(), StatusCode::kInvalidArgument) << uri;
  const std::string with_nul("muster://lab/node/n7\0x", 22);
  EXPECT_FALSE(ParseIdentityUri(with_nul).ok());
}

TEST(Identity, TakesNamesThatArePartsOfPathsToo) {
  EXPECT_TRUE(CheckName("node name", "a").ok());
  EXPECT_TRUE(CheckName("node name", std::string(63, 'a')).ok());
  for (const std::string& name : {std::string(), std::string(64, 'a'), std::string(".a"),
                                  std::string("a/b"), std::string("a\0b", 3), std::string("ä")}) {
    const Status status = CheckName("node name", name);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(status.message().find('\0'), std::string::npos);
  }
}

TEST(Identity, FromRandomBytesIsReadOrRefused) {
  std::mt19937 random(7);
  for (int i = 0; i < 5'000; ++i) {
    std::string uri = i % 2 == 0 ? "muster://" : "";
    for (std::size_t size = random() % 40; size > 0; --size)
      uri += i % 4 < 2 ? "abn/node.-_"[random() % 11] : static_cast<char>(random());
    const auto read = ParseIdentityUri(uri);
    EXPECT_TRUE(!read.ok() || IdentityUri(*read) == uri) << uri;
  }
}

}  // namespace
}  // namespace muster

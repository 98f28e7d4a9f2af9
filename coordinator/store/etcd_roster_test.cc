#include "coordinator/store/etcd_roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "coordinator/store/testing/etcd_server.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class EtcdRosterTest : public ::testing::Test {
 protected:
  std::unique_ptr<EtcdRoster> Open(const std::string& name) const {
    auto roster = EtcdRoster::Open(EtcdServerForTest::Shared().access(), prefix_, name);
    EXPECT_TRUE(roster.ok()) << roster.status().ToString();
    return *std::move(roster);
  }
  void Put(const std::string& name, const std::string& value) const {
    etcdserverpb::TxnRequest request;
    *request.add_success() = EtcdPut(prefix_ + "coordinators/" + name, value);
    ASSERT_TRUE(client_->Transact(request, kEtcdAnswer).ok());
  }
  std::vector<std::string> Names() const {
    const std::string folder = prefix_ + "coordinators/";
    etcdserverpb::RangeRequest range;
    range.set_key(folder);
    range.set_range_end(EtcdPrefixEnd(folder));
    std::vector<std::string> names;
    const auto found = client_->Range(range, kEtcdAnswer);
    for (const auto& each : found->kvs()) names.push_back(each.key().substr(folder.size()));
    return names;
  }

  const std::string prefix_ = EtcdServerForTest::NewPrefix();
  const std::unique_ptr<EtcdClient> client_ = EtcdServerForTest::Shared().Client();
};

TEST_F(EtcdRosterTest, EachSeesTheOthersAndForgetsOneThatWasAwayForADay) {
  const std::int64_t now_ms = SystemClock().UnixMillis();
  Put("away", R"({"address":"w:1","page":"w:2","join":"w:3","seen_ms":)" +
                  std::to_string(now_ms - 3'600'000) + "}");
  Put("gone", R"({"address":"g:1","seen_ms":)" + std::to_string(now_ms - 25 * 3'600'000) + "}");
  Put("nonsense", "[]");
  const auto first = Open("n1:/a");
  const CoordinatorPlace own{.address = "a:1", .page = "a:2", .join = "a:3"};
  first->Announce(own);
  EXPECT_EQ(first->All().front(), own);
  ASSERT_TRUE(Eventually([&] { return Names().size() == 2; }));
  EXPECT_THAT(Names(), ElementsAre("away", "n1:%2fa"));

  const auto second = Open("n2:/a");
  ASSERT_TRUE(Eventually([&] { return second->All().size() == 2; }));
  EXPECT_THAT(second->All(), UnorderedElementsAre(own, CoordinatorPlace{"w:1", "w:2", "w:3"}));
}

TEST_F(EtcdRosterTest, ACoordinatorThatIsStartedAgainReplacesItsEntry) {
  Put("n1:%2fa",
      R"({"address":"a:1","seen_ms":)" + std::to_string(SystemClock().UnixMillis()) + "}");
  const auto again = Open("n1:/a");
  again->Announce({.address = "a:9"});
  const auto has_new = [&] {
    etcdserverpb::RangeRequest range;
    range.set_key(prefix_ + "coordinators/n1:%2fa");
    return client_->Range(range, kEtcdAnswer)->kvs(0).value().find("a:9") != std::string::npos;
  };
  ASSERT_TRUE(Eventually(has_new));
  const auto other = Open("n2:/a");
  ASSERT_TRUE(Eventually([&] { return !other->All().empty(); }));
  EXPECT_THAT(other->All(), ElementsAre(CoordinatorPlace{.address = "a:9"}));
}

}  // namespace
}  // namespace muster

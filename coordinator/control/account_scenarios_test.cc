// Orders to nodes that run jobs as their owners: each names the owner's account.

#include <gtest/gtest.h>

#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

constexpr char kUsers[] = "users: {ada: {account: a-lovelace}, bob: }\nroles: []\n";

void Apply(ControlHarness& h, const std::string& yaml, std::uint64_t version) {
  h.Handle(UsersApplyRequested{.request = 1000 + version,
                               .yaml = yaml,
                               .expected_version = version,
                               .users = ParseUserFile(yaml, "users.yaml")});
}

template <typename Order>
std::string AccountInOrder(ControlHarness& h, const std::string& node) {
  const auto orders = h.Take<Order>(node);
  return orders.empty() ? "no order" : orders.back().account;
}

TEST(Accounts, EachOrderNamesThatOfTheOwnerAsTheUsersAreThen) {
  ControllerOptions options;
  options.scrub_interval = std::chrono::minutes(10);
  ControlHarness h(options);
  h.Join("n1");
  h.Join("n2");
  Apply(h, kUsers, 0);
  h.SubmitAs("ada");
  const JobId id = h.Submit(TrainYaml());
  EXPECT_EQ(AccountInOrder<Prepare>(h, "n1"), "a-lovelace");
  h.RunTo(id, 12);
  h.Forget();
  Apply(h, "users: {ada: {account: ada2}, bob: }\nroles: []\n", 1);
  h.Checkpoint(id, 10);
  EXPECT_EQ(AccountInOrder<CheckpointCommitted>(h, "n1"), "ada2");
  const auto log = h.controller().LocateLog(*h.controller().FindJob(id.value), 0, 0);
  ASSERT_TRUE(log.ok()) << log.status().ToString();
  EXPECT_EQ(log->account, "ada2");
  h.Manifest(id, h.Directory(id, 10));
  h.Advance(std::chrono::minutes(10));
  EXPECT_EQ(AccountInOrder<ScrubCheckpoint>(h, "n1"), "ada2");
}

TEST(Accounts, AnOwnerWithoutOneIsNamedByNoOrder) {
  for (const char* user : {"bob", "nobody", ""}) {
    ControlHarness h;
    h.Join("n1");
    h.Join("n2");
    if (*user != 0) Apply(h, kUsers, 0);
    h.SubmitAs(user);
    h.Submit(TrainYaml());
    EXPECT_EQ(AccountInOrder<Prepare>(h, "n1"), "") << user;
  }
}

}  // namespace
}  // namespace muster

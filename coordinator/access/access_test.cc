#include "coordinator/access/access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "coordinator/access/testing/role_cells.h"
#include "coordinator/queues/queue_file.h"

namespace muster {
namespace {

ClientOperation OperationOf(const std::string& row) {
  const std::string name = row.substr(0, row.find('/'));
  for (const OperationRule& rule : OperationRules())
    if (Name(rule.operation) == name) return rule.operation;
  ADD_FAILURE() << name << " is no operation";
  return ClientOperation::kVersion;
}

class AccessTable : public ::testing::Test {
 protected:
  const RoleCells cells_ = ReadRoleCells(MUSTER_SOURCE_DIR "/coordinator/testdata/roles.txt");
  const QueueTree queues_ = *ParseQueueFile(kRoleQueues, "queues.yaml");
  const UserDirectory users_ = *ParseUserFile(kRoleUsers, "users.yaml");
  const Access access_{users_, queues_};

  static Actor Caller(const std::string& column) {
    if (column == "certificate") return {.kind = Actor::Kind::kAdmin, .name = "root"};
    return {.kind = Actor::Kind::kUser, .name = column};
  }
  // What a caller hears of a job: '+', '-' or '0'.
  char Outcome(const Actor& caller, ClientOperation operation, const JobAccess& job) const {
    if (!access_.CheckActor(caller).ok()) return '-';
    if (!access_.MaySee(caller, job)) return '0';
    return access_.Check(caller, operation, &job).ok() ? '+' : '-';
  }
  std::string JobCell(const std::string& column, ClientOperation operation) const {
    const Actor caller = Caller(column);
    return {Outcome(caller, operation, {column == "certificate" ? "root" : column, "nlp"}),
            Outcome(caller, operation, {"another", "nlp"}),
            Outcome(caller, operation, {"another", "vision"}),
            access_.CheckActor(caller).ok() ? '0' : '-'};
  }
};

TEST_F(AccessTable, HasTheCellsThatWereWrittenByHand) {
  int cells = 0;
  for (const auto& [row, by_column] : cells_.rows) {
    if (row.starts_with("GET")) continue;
    const ClientOperation operation = OperationOf(row);
    const std::size_t slash = row.find('/');
    const std::string where = slash == row.npos ? "" : row.substr(slash + 1);
    for (const auto& [column, expected] : by_column) {
      const Actor caller = Caller(column);
      std::string found;
      if (expected.size() == 4 && where.empty()) {
        found = JobCell(column, operation);
      } else if (expected.size() == 1) {
        const JobAccess job{caller.name, where};
        const bool in_queue = where == "nlp" || where == "vision";
        const ClientOperation asked = in_queue ? ClientOperation::kSubmit : operation;
        found = access_.Check(caller, asked, in_queue ? &job : nullptr).ok() ? "+" : "-";
      } else {
        continue;  // an update that also submits elsewhere: coordinator/roles_test.cc
      }
      EXPECT_EQ(found, expected) << row << " by " << column;
      cells += static_cast<int>(expected.size());
    }
  }
  EXPECT_GT(cells, 600);
}

TEST_F(AccessTable, EveryOperationHasARow) {
  for (const OperationRule& rule : OperationRules())
    EXPECT_TRUE(std::ranges::any_of(cells_.rows, [&rule](const auto& row) {
      return row.first.substr(0, row.first.find('/')) == Name(rule.operation);
    })) << Name(rule.operation);
}

TEST_F(AccessTable, AQueueIsMeantByItsWholeName) {
  const UserDirectory users = *ParseUserFile(
      "users: {ada: }\nroles: [{role: admin, queues: [nlp], users: [ada]}]", "users.yaml");
  const QueueTree queues = *ParseQueueFile("queues: {default: , nlp: , nlp-2: , nl: }", "q.yaml");
  const Access access(users, queues);
  const Actor ada{.kind = Actor::Kind::kUser, .name = "ada"};
  EXPECT_EQ(access.RoleIn(ada, "nlp"), UserRole::kAdmin);
  for (const char* other : {"nlp-2", "nl", "default", "", "gone"})
    EXPECT_EQ(access.RoleIn(ada, other), UserRole::kNone) << other;
}

TEST_F(AccessTable, AUserIsMeantByTheWholeName) {
  const JobAccess job{"submitter-2", "nlp"};
  EXPECT_FALSE(access_.Check(Caller("submitter"), ClientOperation::kCancel, &job).ok());
  EXPECT_EQ(access_.RoleIn(Caller("submitte"), "nlp"), UserRole::kNone);
  EXPECT_EQ(access_.RoleIn(Caller("Submitter"), "nlp"), UserRole::kNone);
}

TEST_F(AccessTable, AJobWithoutAnOwnerIsNobodysOwn) {
  const JobAccess job{"", "nlp"};
  const Actor nameless{.kind = Actor::Kind::kUser, .name = ""};
  EXPECT_FALSE(access_.Check(nameless, ClientOperation::kCancel, &job).ok());
  EXPECT_FALSE(access_.Check(Caller("submitter"), ClientOperation::kCancel, &job).ok());
}

TEST_F(AccessTable, OnlyAdminsOfTheClusterActForAnotherAndThenWithItsRights) {
  const JobAccess job{"submitter", "nlp"};
  const JobAccess others{"another", "nlp"};
  for (const char* admin : {"certificate", "cluster_admin"}) {
    Actor actor = Caller(admin);
    actor.as_user = "submitter";
    EXPECT_TRUE(access_.Check(actor, ClientOperation::kCancel, &job).ok()) << admin;
    EXPECT_FALSE(access_.Check(actor, ClientOperation::kCancel, &others).ok()) << admin;
    EXPECT_FALSE(access_.Check(actor, ClientOperation::kApplyUsers).ok()) << admin;
    EXPECT_TRUE(access_.Check(actor, ClientOperation::kVersion).ok()) << admin;
    actor.as_user = "unknown";
    EXPECT_FALSE(access_.Check(actor, ClientOperation::kVersion).ok()) << admin;
    actor.as_user = "disabled";
    EXPECT_FALSE(access_.Check(actor, ClientOperation::kListJobs).ok()) << admin;
  }
  for (const char* other : {"submitter", "admin", "cluster_operator", "disabled", "nobody"}) {
    Actor actor = Caller(other);
    actor.as_user = "another";
    EXPECT_FALSE(access_.Check(actor, ClientOperation::kVersion).ok()) << other;
    EXPECT_FALSE(access_.CheckActor(actor).ok()) << other;
  }
}

TEST_F(AccessTable, WhoHasProvedNothingMayDoNothing) {
  const JobAccess job{"", "nlp"};
  Actor stranger;
  for (const char* name : {"", "cluster_admin", "node/n1"}) {
    stranger.name = name;
    EXPECT_FALSE(access_.MaySee(stranger, job));
    for (const OperationRule& rule : OperationRules())
      EXPECT_FALSE(access_.Check(stranger, rule.operation, &job).ok()) << Name(rule.operation);
  }
}

TEST_F(AccessTable, WithoutUsersOnlyAdminsMayDoAnything) {
  const UserDirectory none;
  const Access access(none, queues_);
  EXPECT_TRUE(access.Check(Caller("certificate"), ClientOperation::kApplyUsers).ok());
  EXPECT_FALSE(access.Check(Caller("cluster_admin"), ClientOperation::kListJobs).ok());
  EXPECT_EQ(access.ClusterRole(Caller("cluster_admin")), UserRole::kNone);
}

}  // namespace
}  // namespace muster

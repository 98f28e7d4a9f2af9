#include "coordinator/access/user_file.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kWhole[] = R"(
users:
  ada:
  bob: {disabled: true}
  eve: {}
groups:
  nlp: [ada, bob]
roles:
  - {role: submitter, queues: [nlp, speech], groups: [nlp]}
  - {role: operator, queues: [nlp], users: [ada]}
  - {role: viewer, users: [eve]}
)";

std::string ErrorOf(const std::string& yaml) {
  return ParseUserFile(yaml, "users.yaml").status().message();
}

TEST(UserFile, GivesEachUserTheStrongestRoleOfAllGrants) {
  const auto users = ParseUserFile(kWhole, "users.yaml");
  ASSERT_TRUE(users.ok()) << users.status().ToString();
  EXPECT_THAT(users->Find("ada")->queues,
              ElementsAre(Pair("nlp", UserRole::kOperator), Pair("speech", UserRole::kSubmitter)));
  EXPECT_EQ(users->Find("ada")->cluster, UserRole::kNone);
  EXPECT_TRUE(users->Find("bob")->disabled);
  EXPECT_THAT(users->Find("bob")->queues,
              ElementsAre(Pair("nlp", UserRole::kSubmitter), Pair("speech", UserRole::kSubmitter)));
  EXPECT_EQ(users->Find("eve")->cluster, UserRole::kViewer);
  EXPECT_EQ(users->Find("mallory"), nullptr);
  EXPECT_FALSE(users->in_force());
}

TEST(UserFile, NamesTheAccountsOfNodes) {
  const auto users = ParseUserFile("users: {ada: {account: a.lovelace@lab}, bob: }", "users.yaml");
  ASSERT_TRUE(users.ok()) << users.status().ToString();
  EXPECT_EQ(users->Find("ada")->account, "a.lovelace@lab");
  EXPECT_EQ(users->Find("bob")->account, "");
  for (const char* wrong : {"'../x'", "'-x'", "'a b'", "''", "'a:b'"})
    EXPECT_THAT(ErrorOf(std::string("users: {ada: {account: ") + wrong + "}}"),
                HasSubstr("users.yaml:1: users.ada.account"))
        << wrong;
  auto changed = *users;
  changed.users["ada"].account.clear();
  changed.users["bob"].account = "bob";
  EXPECT_THAT(UserChanges(*users, changed),
              ElementsAre("ada: has no account on nodes", "bob: runs as bob on nodes"));
}

TEST(UserFile, AWeakerGrantBehindAStrongerOneTakesNothingAway) {
  const auto users = ParseUserFile(
      "users: {ada: }\nroles: [{role: operator, queues: [nlp], users: [ada]}, "
      "{role: viewer, queues: [nlp], users: [ada]}, {role: admin, users: [ada]}, "
      "{role: viewer, users: [ada]}]",
      "users.yaml");
  ASSERT_TRUE(users.ok()) << users.status().ToString();
  EXPECT_EQ(users->Find("ada")->queues.at("nlp"), UserRole::kOperator);
  EXPECT_EQ(users->Find("ada")->cluster, UserRole::kAdmin);
}

TEST(UserFile, NamesTheLineAndTheKeyOfWhatIsWrong) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("users: {ada: {}}"));
  EXPECT_THAT(ErrorOf("roles: []"), HasSubstr("users"));
  EXPECT_THAT(ErrorOf("users: {'a b': }"), HasSubstr("a name has 1 to 63 letters"));
  EXPECT_THAT(ErrorOf("users: {ada: {admin: true}}"), HasSubstr("users.ada.admin"));
  EXPECT_THAT(ErrorOf("users: {ada: }\ngroups: {nlp: [bob]}"),
              HasSubstr("users.yaml:2: groups.nlp: 'bob' is not among the users"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nroles: [{role: root, users: [ada]}]"), HasSubstr("roles"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nroles: [{role: viewer}]"),
              HasSubstr("name users or groups"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nroles: [{role: viewer, users: [bob]}]"),
              HasSubstr("'bob' is not among the users"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nroles: [{role: viewer, groups: [nlp]}]"),
              HasSubstr("'nlp' is not among the groups"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nroles: [{role: viewer, queues: [], users: [ada]}]"),
              HasSubstr("whole cluster"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nroles: {role: viewer}"), HasSubstr("expected a list"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nroles: [{queues: [a], users: [ada]}]"), HasSubstr("role"));
  EXPECT_THAT(ErrorOf("users: {ada: }\nnames: 1"), HasSubstr("names"));
  EXPECT_THAT(ErrorOf("users: ["), HasSubstr("YAML"));
}

TEST(UserFile, ChangesNameEachUserThatHasOtherRoles) {
  const UserDirectory before = *ParseUserFile(kWhole, "users.yaml");
  UserDirectory after = before;
  after.users.erase("eve");
  after.users["bob"].disabled = false;
  after.users["zoe"].cluster = UserRole::kAdmin;
  EXPECT_THAT(UserChanges(before, after),
              ElementsAre("eve: removed",
                          "bob: submitter in nlp, submitter in speech, disabled -> submitter in "
                          "nlp, submitter in speech",
                          "zoe: new, admin in the whole cluster"));
  EXPECT_THAT(UserChanges(after, after), ElementsAre());
}

TEST(UserFile, AStoredFileThatThisVersionRefusesNamesItsVersion) {
  EXPECT_EQ(ParseStoredUsers(0, "")->version, 0u);
  EXPECT_EQ(ParseStoredUsers(7, kWhole)->version, 7u);
  const auto bad = ParseStoredUsers(7, "users: 1");
  EXPECT_EQ(bad.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(bad.status().message(), HasSubstr("version 7 of the users"));
}

TEST(UserFile, RolesAreInQueuesThatThereAre) {
  const UserDirectory users = *ParseUserFile(kWhole, "users.yaml");
  EXPECT_EQ(CheckQueues(users, DefaultTree()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckQueues(UserDirectory{}, DefaultTree()), OkStatus());
}

constexpr char kIssuers[] = R"(
issuers:
  - {url: "https://issuer.example/realm", client_id: muster}
  - {url: "https://other.example", client_id: cluster-7}
users:
  ada: {identity: {issuer: "https://issuer.example/realm", subject: "248289761001"}}
  bob: {identity: {issuer: "https://other.example", subject: 248289761001}}
  eve:
)";

TEST(UserFile, AnIdentityIsASubjectOfAnIssuer) {
  const auto users = ParseUserFile(kIssuers, "users.yaml");
  ASSERT_TRUE(users.ok()) << users.status().ToString();
  EXPECT_EQ(users->FindIssuer("https://other.example")->client_id, "cluster-7");
  EXPECT_EQ(users->FindIssuer("https://other.example/"), nullptr);
  EXPECT_EQ(*users->FindByIdentity("https://issuer.example/realm", "248289761001"), "ada");
  EXPECT_EQ(*users->FindByIdentity("https://other.example", "248289761001"), "bob");
  EXPECT_EQ(users->FindByIdentity("https://other.example", "1"), nullptr);
  EXPECT_EQ(users->FindByIdentity("", ""), nullptr);
}

TEST(UserFile, SaysWhatIsWrongWithIssuersAndIdentities) {
  const auto with = [](const std::string& issuers, const std::string& identity) {
    return ErrorOf("issuers: " + issuers + "\nusers: {eve: {identity: {issuer: 'https://a', " +
                   "subject: '1'}}, ada: {identity: " + identity + "}}");
  };
  const std::string good = "[{url: 'https://a', client_id: muster}]";
  EXPECT_EQ(with(good, "{issuer: 'https://a', subject: '2'}"), "");
  EXPECT_THAT(with(good, "{issuer: 'https://a', subject: '1'}"),
              HasSubstr("users.ada.identity.subject: is also the identity of 'eve'"));
  EXPECT_THAT(with(good, "{issuer: 'https://b', subject: '2'}"),
              HasSubstr("'https://b' is not among the issuers"));
  EXPECT_THAT(with(good, "{issuer: 'https://a'}"), HasSubstr("subject"));
  EXPECT_THAT(with(good, "{issuer: 'https://a', subject: ''}"), HasSubstr("1 to 255 characters"));
  EXPECT_THAT(with(good, "{issuer: 'https://a', subject: '2', mail: a@b}"), HasSubstr("mail"));
  EXPECT_THAT(with("[{url: 'https://a'}]", "{}"), HasSubstr("client_id"));
  EXPECT_THAT(with("{url: 'https://a'}", "{}"), HasSubstr("expected a list"));
  EXPECT_THAT(with("[{url: 'https://a', client_id: m}, {url: 'https://a', client_id: n}]", "{}"),
              HasSubstr("is there twice"));
  for (const char* url : {"http://a", "https://", "https://a?b", "https://u@a", "a"})
    EXPECT_THAT(with("[{url: '" + std::string(url) + "', client_id: muster}]", "{}"),
                HasSubstr("expected https://HOST/PATH"))
        << url;
}

TEST(UserChanges, NamesIssuersAndIdentities) {
  const auto before = ParseUserFile(kIssuers, "f");
  auto after = *ParseUserFile(kIssuers, "f");
  after.issuers.pop_back();
  after.issuers[0].client_id = "new";
  after.users["bob"].identity = {};
  EXPECT_THAT(
      UserChanges(*before, after),
      ElementsAre("issuer https://other.example: removed",
                  "issuer https://issuer.example/realm: client new", "bob: logs in nowhere"));
  EXPECT_THAT(UserChanges({}, *before),
              ::testing::Contains("ada: logs in as 248289761001 at https://issuer.example/realm"));
}

}  // namespace
}  // namespace muster

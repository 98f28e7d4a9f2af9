#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"
#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/rpc/endpoint.h"
#include "common/security/certificate_request.h"
#include "common/security/credentials.h"
#include "common/security/enrolment.h"
#include "common/security/revocation.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class SecurityCommands : public ::testing::Test {
 protected:
  Json Result(const CommandResult& result) {
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    const Json json = Json::parse(out_.str(), nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << out_.str();
    out_.str("");
    return json;
  }
  CommandResult Run(std::vector<std::string> words) {
    return RunMuster(context_, std::move(words));
  }
  Json Init(std::vector<std::string> flags = {"--cluster", "lab"}) {
    flags.insert(flags.begin(), "init");
    return Result(Run(std::move(flags)));
  }
  Json List() { return Result(Run({"certs", "list"})); }
  Json ListAll() { return Result(Run({"certs", "list", "--all"})); }
  // To a directory of its own.
  CommandResult Issue(const std::string& node, const std::string& dir) {
    return Run({"certs", "issue", "--role", "node", "--name", node, "--out", temp_ / dir});
  }
  void Does(const CommandResult& result) {
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result.ok() ? *result : -1, kExitSuccess);
    out_.str("");
  }
  // The state of each certificate by the name of its owner.
  std::map<std::string, std::string> States() {
    std::map<std::string, std::string> states;
    const Json list = List();
    for (const Json& entry : list["certificates"]) states[entry["name"]] = entry["state"];
    return states;
  }
  // What is in the cluster's directory, byte by byte.
  std::map<std::string, std::string> Files() {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(temp_.path()))
      if (entry.is_regular_file()) files[entry.path()] = *ReadFile(entry.path());
    return files;
  }

  const TempDirForTest temp_;
  const std::string dir_ = temp_ / "cluster";
  const SecurityPaths paths_{dir_ + "/security"};
  Interrupt interrupt_;
  std::ostringstream out_;
  std::ostringstream err_;
  Terminal terminal_{out_, err_};
  ClusterClient client_{dir_, interrupt_};
  CommandContext context_{client_, terminal_, OutputFormat::kJson};
};

TEST_F(SecurityCommands, InitMakesAnAuthorityAndThreeCredentials) {
  const Json json = Init();
  EXPECT_EQ(json["cluster"], "lab");
  EXPECT_TRUE(json["created"]);
  ASSERT_EQ(json["credentials"].size(), 3U);
  const std::pair<std::string, Role> kExpected[] = {
      {paths_.CoordinatorCredentials(), Role::kCoordinator},
      {paths_.AdminCredentials(), Role::kAdmin},
      {paths_.ScraperCredentials(), Role::kScraper}};
  for (const auto& [dir, role] : kExpected) {
    const auto credentials = LoadCredentials(dir);
    ASSERT_TRUE(credentials.ok()) << credentials.status().ToString();
    EXPECT_EQ(credentials->identity, (Identity{role, std::string(RoleWord(role)), "lab"}));
  }
}

TEST_F(SecurityCommands, InitChangesNothingTheSecondTime) {
  Init();
  const auto before = Files();
  const Json second = Init({});
  EXPECT_FALSE(second["created"]);
  EXPECT_EQ(second["cluster"], "lab");
  for (const Json& entry : second["credentials"]) EXPECT_FALSE(entry["created"]);
  EXPECT_EQ(Files(), before);
  context_.output = OutputFormat::kTable;
  ASSERT_TRUE(Run({"init"}).ok());
  EXPECT_NE(out_.str().find("Found the certificate authority of cluster lab"), std::string::npos);
  EXPECT_NE(out_.str().find("muster certs join-token --dir " + dir_), std::string::npos)
      << out_.str();
}

TEST_F(SecurityCommands, InitMakesWhatIsMissingAndNothingElse) {
  Init();
  const std::string admin = *ReadFile(paths_.AdminCredentials() + "/cert.pem");
  fs::remove_all(paths_.ScraperCredentials());
  const Json json = Init();
  EXPECT_FALSE(json["credentials"][0]["created"]);
  EXPECT_TRUE(json["credentials"][2]["created"]);
  EXPECT_EQ(*ReadFile(paths_.AdminCredentials() + "/cert.pem"), admin);
  EXPECT_TRUE(LoadCredentials(paths_.ScraperCredentials()).ok());
}

TEST_F(SecurityCommands, InitMakesNoSecondClusterOutOfOne) {
  Init();
  const auto before = Files();
  const auto other = Run({"init", "--cluster", "other"});
  EXPECT_EQ(other.status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Files(), before);
}

TEST_F(SecurityCommands, InitForceKeepsAnAuthorityWhoseCertificatesAreGood) {
  Init();
  const auto before = Files();
  const auto forced = Run({"init", "--cluster", "lab", "--force"});
  EXPECT_EQ(forced.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(forced.status().message().find("3 valid certificates"), std::string::npos)
      << forced.status().message();
  EXPECT_NE(forced.status().message().find("admin/admin"), std::string::npos);
  EXPECT_EQ(Files(), before);
}

TEST_F(SecurityCommands, InitForceDestroysNoKeyEvenWhenItIsMeant) {
  Init();
  const std::string key = *ReadFile(paths_.AuthorityKey());
  const Json json = Init({"--cluster", "lab", "--force", "--yes"});
  EXPECT_TRUE(json["created"]);
  EXPECT_NE(*ReadFile(paths_.AuthorityKey()), key);
  EXPECT_EQ(*ReadFile(json["replaced"].get<std::string>() + "/ca.key"), key);
  EXPECT_EQ(States().size(), 3U);
}

TEST_F(SecurityCommands, IssueRenewsWhatIsThere) {
  Init();
  const std::string before = LoadCredentials(paths_.ScraperCredentials())->serial;
  const Json json = Result(Run({"certs", "issue", "--role", "scraper", "--lifetime", "2h"}));
  EXPECT_EQ(json["dir"], paths_.ScraperCredentials());
  const auto after = LoadCredentials(paths_.ScraperCredentials());
  EXPECT_EQ(after->serial, json["serial"]);
  EXPECT_NE(after->serial, before);
  EXPECT_EQ(after->not_after_ms - after->issued_ms, 2 * 3600 * 1000);
}

TEST_F(SecurityCommands, IssueWritesOverNoOtherCredentials) {
  Init();
  EXPECT_EQ(Run({"certs", "issue", "--role", "node", "--name", "n7"}).status().code(),
            StatusCode::kInvalidArgument);
  const auto over =
      Run({"certs", "issue", "--role", "node", "--name", "n7", "--out", paths_.AdminCredentials()});
  EXPECT_EQ(over.status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(LoadCredentials(paths_.AdminCredentials())->identity.role, Role::kAdmin);
  Does(Issue("n7", "n7"));
  EXPECT_EQ(LoadCredentials(temp_ / "n7")->identity, (Identity{Role::kNode, "n7", "lab"}));
  EXPECT_FALSE(Run({"certs", "issue", "--role", "root"}).ok());
  EXPECT_FALSE(Issue("a/b", "x").ok());
}

TEST_F(SecurityCommands, JoinTokenNamesTheRunningCoordinatorsAddresses) {
  Init();
  context_.output = OutputFormat::kTable;
  const std::string path = context_.client.paths().Endpoint();
  ASSERT_TRUE(MakeDirectories(context_.client.paths().CoordinatorDir(), 0700).ok());
  ASSERT_TRUE(WriteEndpoint(path, {.grpc = "127.0.0.1:1",
                                   .http = "127.0.0.1:2",
                                   .grpc_tls = "0.0.0.0:7070",
                                   .grpc_join = "10.0.0.1:7072"})
                  .ok());
  ASSERT_TRUE(Run({"certs", "join-token", "--node", "n7"}).ok());
  const auto invitation = ParseInvitation(out_.str());
  ASSERT_TRUE(invitation.ok()) << out_.str();
  EXPECT_TRUE(ParseJoinToken(invitation->token).ok());
  EXPECT_EQ(invitation->join_address, "10.0.0.1:7072");
  EXPECT_EQ(invitation->coordinator, "10.0.0.1:7070");
  EXPECT_EQ(err_.str().find("--coordinator"), std::string::npos) << err_.str();
  out_.str("");
  ASSERT_TRUE(Run({"certs", "join-token", "--node", "n7", "--join-address", "192.0.2.1:9"}).ok());
  EXPECT_EQ(ParseInvitation(out_.str())->join_address, "192.0.2.1:9");
  EXPECT_EQ(ParseInvitation(out_.str())->coordinator, "192.0.2.1:7070");
}

TEST_F(SecurityCommands, JoinTokenPrintsTheTokenAloneAndLetsTheNodeIn) {
  Init();
  context_.output = OutputFormat::kTable;
  ASSERT_TRUE(Run({"certs", "join-token", "--node", "n7"}).ok());
  const auto token = ParseJoinToken(out_.str());
  ASSERT_TRUE(token.ok()) << out_.str();
  EXPECT_NE(err_.str().find("does not name the address to join"), std::string::npos) << err_.str();
  EXPECT_EQ(out_.str(), *EncodeJoinToken(*token) + "\n");
  EXPECT_NE(err_.str().find("--node n7 --coordinator"), std::string::npos) << err_.str();
  out_.str("");
  context_.output = OutputFormat::kJson;
  ASSERT_EQ(List()["tokens"].size(), 1U);

  const std::string csr = MakeCertificateRequest({Role::kNode, "n7", "lab"})->csr_pem;
  const JoinRequest request{token->id, token->secret, "n7", csr};
  const auto joined =
      Enrolment::Open(paths_.dir)->Join({&request, 1}, SystemClock().UnixMillis())[0];
  EXPECT_TRUE(joined.ok()) << joined.status().ToString();
  EXPECT_EQ(List()["tokens"].size(), 0U);
  EXPECT_EQ(ListAll()["tokens"][0]["state"], "used by n7");
  EXPECT_EQ(States()["n7"], "good");
}

TEST_F(SecurityCommands, JoinTokenIsForOneNodeOrWarnsThatItIsForAny) {
  Init();
  EXPECT_EQ(Run({"certs", "join-token"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Run({"certs", "join-token", "--node", "n7", "--any-node"}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Result(Run({"certs", "join-token", "--any-node"}))["node"], "");
}

TEST_F(SecurityCommands, RevokeRefusesAllCertificatesOfAName) {
  Init();
  for (const char* out : {"one", "two"}) Does(Issue("n7", out));
  Does(Issue("n8", "n8"));
  Does(Run({"certs", "revoke", "n7", "--reason", "stolen"}));
  EXPECT_EQ(States()["n7"], "revoked");
  EXPECT_EQ(States()["n8"], "good");
  const Json revoked = List()["revoked"];
  ASSERT_EQ(revoked.size(), 1U);
  EXPECT_EQ(revoked[0]["identity"], "muster://lab/node/n7");
  EXPECT_EQ(revoked[0]["reason"], "stolen");
  // An identity of another role with the same name stays valid.
  Does(Run({"certs", "revoke", "n8", "--role", "admin"}));
  EXPECT_EQ(States()["n8"], "good");
}

TEST_F(SecurityCommands, IssueLetsARevokedNameInAgainButNotItsOldCertificates) {
  Init();
  const Identity node{Role::kNode, "n7", "lab"};
  Does(Issue("n7", "old"));
  const std::int64_t a_minute_ago = SystemClock().UnixMillis() - 60'000;
  ASSERT_TRUE(Revoke(paths_.RevokedCertificates(),
                     {.identity = IdentityUri(node), .revoked_ms = a_minute_ago})
                  .ok());
  Does(Issue("n7", "new"));
  const auto revocations = LoadRevocations(paths_.RevokedCertificates());
  EXPECT_EQ(revocations->Find(node), nullptr);
  EXPECT_TRUE(revocations->Check(*ReadCertificate(LoadCredentials(temp_ / "new")->cert_pem)).ok());
  const CertificateInfo before{node, std::string(32, '0'), a_minute_ago, a_minute_ago + 120'000};
  EXPECT_FALSE(revocations->Check(before).ok());
}

TEST_F(SecurityCommands, RevokeTakesASerialAsOpensslWritesIt) {
  Init();
  const std::string serial = LoadCredentials(paths_.AdminCredentials())->serial;
  std::string written;
  for (std::size_t i = 0; i < serial.size(); ++i) {
    if (i > 0 && i % 2 == 0) written += ':';
    written += static_cast<char>(std::toupper(serial[i]));
  }
  Does(Run({"certs", "revoke", "--serial", written}));
  EXPECT_EQ(States()["admin"], "revoked");
  EXPECT_EQ(States()["coordinator"], "good");
}

TEST_F(SecurityCommands, RevokeTakesWhatIsNotInTheRegisterWithAWarning) {
  Init();
  Does(Run({"certs", "revoke", "n7"}));
  EXPECT_NE(err_.str().find("the register has no certificate of node n7"), std::string::npos)
      << err_.str();
  Does(Run({"certs", "revoke", "--serial", "00ff"}));
  EXPECT_NE(err_.str().find("00ff; muster certs list"), std::string::npos) << err_.str();
  const auto revocations = LoadRevocations(paths_.RevokedCertificates());
  EXPECT_NE(revocations->Find({Role::kNode, "n7", "lab"}), nullptr);
  EXPECT_EQ(revocations->entries().back().serial, std::string(28, '0') + "00ff");
  // What it knows is revoked without a word about it.
  err_.str("");
  Does(Run({"certs", "revoke", "scraper", "--role", "scraper"}));
  EXPECT_EQ(err_.str(), "");
}

TEST_F(SecurityCommands, RevokeWithdrawsATokenByItsId) {
  Init();
  const std::string id = Result(Run({"certs", "join-token", "--node", "n7"}))["id"];
  Does(Run({"certs", "revoke", "--token", id}));
  EXPECT_TRUE(ListAll()["tokens"].empty());
  EXPECT_EQ(Run({"certs", "revoke", "--token", id}).status().code(), StatusCode::kNotFound);
}

TEST_F(SecurityCommands, RevokeTakesOneThingThatIsThere) {
  Init();
  const auto code = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"certs", "revoke"});
    return Run(std::move(words)).status().code();
  };
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"admin", "--role", "admin", "--serial", "00"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"--serial", "not a serial"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"n7", "--role", "king"}), StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(paths_.RevokedCertificates()));
}

TEST_F(SecurityCommands, NeedAnAuthorityAndPrintHowToMakeOne) {
  for (const auto& result :
       {Run({"certs", "list"}), Run({"certs", "revoke", "n7"}),
        Run({"certs", "issue", "--role", "admin"}), Run({"certs", "join-token", "--node", "n7"})}) {
    EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
    EXPECT_NE(result.status().message().find("muster init"), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(dir_));
}

class SecurityCommandLine : public SecurityCommands {
 protected:
  // Runs muster as a shell would; what it printed.
  std::string Muster(std::vector<std::string> arguments, int exit_code = kExitSuccess) {
    arguments.insert(arguments.begin(), {"muster", "--dir", dir_, "-o", "json"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    ::testing::internal::CaptureStdout();
    const int code = RunApp(static_cast<int>(argv.size()), argv.data(), interrupt_);
    const std::string printed = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(code, exit_code) << printed;
    return printed;
  }
};

TEST_F(SecurityCommandLine, TakesLifetimesAsPeopleWriteThem) {
  Muster({"init", "--cluster", "lab", "--lifetime", "400d"});
  const auto authority = ReadAuthority(*ReadFile(paths_.AuthorityCertificate()));
  EXPECT_EQ(authority->not_after_ms - authority->not_before_ms, 400LL * 86'400'000 + 300'000);
  const Json issued = Json::parse(Muster({"certs", "issue", "--role", "node", "--name", "n7",
                                          "--lifetime", "90m", "--out", temp_ / "n7"}));
  EXPECT_EQ(issued["role"], "node");
  const auto credentials = LoadCredentials(temp_ / "n7");
  EXPECT_EQ(credentials->not_after_ms - credentials->issued_ms, 90 * 60'000);
  Muster({"certs", "issue", "--role", "admin", "--lifetime", "soon"}, kExitBadUsage);
}

TEST_F(SecurityCommandLine, TakesFlagsFromTheEnvironment) {
  Muster({"init"});
  ASSERT_EQ(::setenv("MUSTER_CERTS_JOIN_TOKEN_NODE", "n9", 1), 0);
  const Json token = Json::parse(Muster({"certs", "join-token"}));
  ::unsetenv("MUSTER_CERTS_JOIN_TOKEN_NODE");
  EXPECT_EQ(token["node"], "n9");
  Muster({"certs", "revoke", "--token", token["id"]});
  Muster({"certs", "join-token"}, kExitBadUsage);
  Muster({"certs"}, kExitBadUsage);
}

}  // namespace
}  // namespace muster

// OpenSSL's own command line judges what CertificateAuthority makes.
#include <gtest/gtest.h>

#include <filesystem>

#include "common/process/run_child.h"
#include "common/security/certificate_request.h"
#include "common/security/testing/authority.h"
#include "common/security/testing/verify_certificate.h"

namespace muster {
namespace {

class OpenSslVerifies : public AuthorityForTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists("/usr/bin/openssl"))
        << "openssl is not installed (deploy/apt-packages.txt)";
  }
  // What openssl said of the arguments, and whether it liked them.
  static ChildOutcome Run(std::vector<std::string> arguments) {
    RunChildOptions options;
    options.spawn.argv = {"/usr/bin/openssl"};
    for (std::string& argument : arguments) options.spawn.argv.push_back(std::move(argument));
    options.max_output = 1 << 16;
    auto outcome = RunChild(options);
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return *outcome;
  }
  std::string Written(const std::string& name, const std::string& content) {
    EXPECT_TRUE(WriteFileAtomically(temp_ / name, content, 0600).ok());
    return temp_ / name;
  }
  bool Verifies(const std::string& pem, const std::string& purpose, std::int64_t now_ms,
                const std::string& name = "") {
    std::vector<std::string> arguments = {"verify",
                                          "-x509_strict",
                                          "-check_ss_sig",
                                          "-purpose",
                                          purpose,
                                          "-attime",
                                          std::to_string(now_ms / 1000),
                                          "-CAfile",
                                          temp_ / "security/ca.pem"};
    if (!name.empty()) arguments.insert(arguments.end(), {"-verify_hostname", name});
    arguments.push_back(Written("leaf.pem", pem));
    return Run(arguments).ok();
  }
};

TEST_F(OpenSslVerifies, TheCertificateOfEachRole) {
  const CertificateAuthority authority = MakeAuthority();
  for (const Role role : kRoles) {
    SCOPED_TRACE(std::string(RoleWord(role)));
    const auto issued =
        authority.Issue({role, std::string(63, 'n'), "lab"}, DefaultLifetime(role), kNowForTest);
    ASSERT_TRUE(issued.ok()) << issued.status().ToString();
    const bool serves = !ServerName(role).empty();
    EXPECT_TRUE(Verifies(issued->certificate_pem, "sslclient", kNowForTest));
    EXPECT_EQ(Verifies(issued->certificate_pem, "sslserver", kNowForTest), serves);
    if (serves) {
      EXPECT_TRUE(Verifies(issued->certificate_pem, "sslserver", kNowForTest,
                           std::string(ServerName(role))));
    }
    EXPECT_FALSE(
        Verifies(issued->certificate_pem, "sslclient", kNowForTest, "coordinator.example"));
    EXPECT_EQ(Verifies(issued->certificate_pem, "sslclient", kNowForTest, kCoordinatorServerName),
              role == Role::kCoordinator);
  }
}

TEST_F(OpenSslVerifies, AtTheTimesThatWeDo) {
  const CertificateAuthority authority = MakeAuthority();
  const std::string pem = IssueNode(authority).certificate_pem;
  for (const std::int64_t offset_ms :
       {-6 * kMinuteMs, -5 * kMinuteMs, std::int64_t{0}, kDayMs - 1000, kDayMs + 1000}) {
    const bool ours = VerifyCertificate(pem, authority.certificate_pem(), Purpose::kClient,
                                        kNowForTest + offset_ms)
                          .ok();
    EXPECT_EQ(Verifies(pem, "sslclient", kNowForTest + offset_ms), ours) << offset_ms;
  }
}

TEST_F(OpenSslVerifies, NothingOfAnotherAuthority) {
  MakeAuthority();
  EXPECT_FALSE(
      Verifies(IssueNode(MakeAuthority("other")).certificate_pem, "sslclient", kNowForTest));
}

TEST_F(OpenSslVerifies, TheRequestAndTheKey) {
  const auto request = MakeCertificateRequest(Node("n7"));
  const std::string csr = Written("csr.pem", request->csr_pem);
  EXPECT_TRUE(Run({"req", "-in", csr, "-noout", "-verify"}).ok());
  const std::string key = Written("key.pem", request->key_pem);
  const ChildOutcome read = Run({"pkey", "-in", key, "-noout", "-text"});
  EXPECT_TRUE(read.ok());
  EXPECT_NE(read.output.find("NIST CURVE: P-256"), std::string::npos) << read.output;
}

TEST_F(OpenSslVerifies, AndReadsTheExtensionsAsTheyAreMeant) {
  const CertificateAuthority authority = MakeAuthority();
  const std::string path = Written("leaf.pem", IssueNode(authority).certificate_pem);
  const std::string text = Run({"x509", "-in", path, "-noout", "-text"}).output;
  for (const char* line :
       {"ecdsa-with-SHA256", "URI:muster://lab/node/n7, DNS:node.muster", "CA:FALSE",
        "Digital Signature", "TLS Web Server Authentication, TLS Web Client Authentication",
        "X509v3 Authority Key Identifier", "OU = node, CN = n7"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

}  // namespace
}  // namespace muster

#include "common/security/site_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/security/testing/site_authority.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SiteCertificateTest : public ::testing::Test {
 protected:
  static Status Loading(const SiteCertificateFiles& files) {
    return SiteCertificate::Load(files, SystemClock().UnixMillis()).status();
  }
  Status LoadingOf(const SiteServerForTest& server) {
    return Loading(authority_.Write("tls", server));
  }

  SiteAuthorityForTest authority_;
};

TEST_F(SiteCertificateTest, IsForTheNamesThatItHas) {
  const auto loaded = SiteCertificate::Load(authority_.Write("tls"), SystemClock().UnixMillis());
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_THAT(loaded->names, ElementsAre("muster.example.org", "*.lab.example.org"));
  for (const char* host : {"muster.example.org", "MUSTER.example.org", "a.lab.example.org"})
    EXPECT_TRUE(loaded->IsFor(host)) << host;
  for (const char* host : {"", "example.org", "lab.example.org", "a.b.lab.example.org", "localhost",
                           "coordinator.muster", ".lab.example.org.evil", "10.0.0.1"})
    EXPECT_FALSE(loaded->IsFor(host)) << host;
}

TEST_F(SiteCertificateTest, WhatNoBrowserWouldAcceptIsRefusedWithTheReason) {
  EXPECT_THAT(LoadingOf({.until_s = -1}).message(), HasSubstr("expired at"));
  EXPECT_THAT(LoadingOf({.from_s = 600}).message(), HasSubstr("is not valid before"));
  EXPECT_THAT(LoadingOf({.usage = "clientAuth"}).message(), HasSubstr("is not for servers"));
  EXPECT_THAT(LoadingOf({.names = "URI:spiffe://example.org/muster"}).message(),
              HasSubstr("names no host"));
  EXPECT_THAT(LoadingOf({.names = ""}).message(), HasSubstr("names no host"));
  EXPECT_TRUE(LoadingOf({.names = "URI:spiffe://example.org/muster,DNS:muster.example.org"}).ok());
  EXPECT_TRUE(LoadingOf({.with_intermediate = false}).ok()) << "the root may have signed it";
}

TEST_F(SiteCertificateTest, AChainInAnotherOrderIsRefused) {
  const SiteCertificateFiles one = authority_.Write("one");
  const SiteCertificateFiles other = authority_.Write("other", {.with_intermediate = false});
  ASSERT_TRUE(WriteFileAtomically(one.chain,
                                  ReadFile(one.chain).value() + ReadFile(other.chain).value(), 0644)
                  .ok());
  EXPECT_THAT(Loading(one).message(), HasSubstr("is followed by one that has not signed it"));
}

TEST_F(SiteCertificateTest, TheKeyMustBeTheCertificatesAndKnownToNoOthers) {
  SiteCertificateFiles files = authority_.Write("tls");
  EXPECT_THAT(Loading({files.chain, authority_.Write("other").key}).message(),
              HasSubstr("is not that of"));
  ASSERT_EQ(::chmod(files.key.c_str(), 0640), 0) << "as in a volume of Kubernetes";
  EXPECT_TRUE(Loading(files).ok());
  for (const mode_t mode : {0644, 0660}) {
    ASSERT_EQ(::chmod(files.key.c_str(), mode), 0);
    EXPECT_EQ(Loading(files).code(), StatusCode::kPermissionDenied);
  }
  EXPECT_THAT(Loading({files.chain, files.key + "-none"}).message(), HasSubstr("private key "));
  ASSERT_EQ(::chmod(files.key.c_str(), 0600), 0);
  EXPECT_EQ(Loading({files.chain + "-none", files.key}).code(), StatusCode::kNotFound);
  EXPECT_THAT(Loading({files.key, files.key}).message(), HasSubstr("no certificate in PEM"));
  EXPECT_THAT(Loading({files.chain, files.chain}).message(), HasSubstr("may be read by others"));
}

TEST_F(SiteCertificateTest, OneFileMayHaveBothAndALinkMayLeadToIt) {
  const SiteCertificateFiles files = authority_.Write("tls");
  ASSERT_TRUE(WriteFileAtomically(files.key,
                                  ReadFile(files.chain).value() + ReadFile(files.key).value(), 0600)
                  .ok());
  const std::string link = files.key + ".link";
  std::filesystem::create_symlink(files.key, link);
  EXPECT_TRUE(Loading({link, link}).ok());
}

}  // namespace
}  // namespace muster

#include "worker/launcher/messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "worker/launcher/client.h"

namespace muster::launcher {
namespace {

std::string Bytes(const Request& request) {
  return {reinterpret_cast<const char*>(&request), sizeof request};
}

Request ToStart() {
  Request request;
  request.verb = Verb::kGuardian;
  EXPECT_TRUE(Put("ada", request.account) && Put("00c0ffee00", request.job) &&
              Put("/run/lock", request.devices));
  return request;
}

bool Accepts(const Request& request, std::size_t descriptors = 1) {
  return Decode(Bytes(request), descriptors).has_value();
}

TEST(LauncherMessages, AWholeRequestIsAccepted) {
  const auto read = Decode(Bytes(ToStart()), 1);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(Bytes(*read), Bytes(ToStart()));
  EXPECT_TRUE(Accepts(Request{}, 0));
}

TEST(LauncherMessages, EverythingElseIsRefused) {
  EXPECT_FALSE(Decode(Bytes(ToStart()).substr(1), 1));
  EXPECT_FALSE(Decode(Bytes(ToStart()) + "x", 1));
  EXPECT_FALSE(Decode(Bytes(ToStart()), 0));
  EXPECT_FALSE(Decode(Bytes(ToStart()), 2));
  const auto refuses = [](auto change, std::size_t descriptors = 1) {
    Request request = ToStart();
    change(request);
    return !Accepts(request, descriptors);
  };
  EXPECT_TRUE(refuses([](Request& r) { r.version = 2; }));
  for (const int verb : {0, 7, 255})
    EXPECT_TRUE(refuses([&](Request& r) { r.verb = static_cast<Verb>(verb); })) << verb;
  EXPECT_TRUE(refuses([](Request& r) { r.reserved[1] = 1; }));
  EXPECT_TRUE(refuses([](Request& r) { std::memset(r.account, 'a', sizeof r.account); }));
  EXPECT_TRUE(refuses([](Request& r) { r.account[20] = 'x'; })) << "behind the end of the text";
  for (const char* name : {"", "a/b", "-r", ".x", "a b", "a:b"})
    EXPECT_TRUE(refuses([&](Request& r) { Put(name, r.account); })) << name;
  for (const char* job : {"", ".", "..", "a/b", "../x"})
    EXPECT_TRUE(refuses([&](Request& r) { Put(job, r.job); })) << job;
  for (const char* path : {"", "run/lock", "/run/../etc", "/run/.."})
    EXPECT_TRUE(refuses([&](Request& r) { Put(path, r.devices); })) << path;
  EXPECT_TRUE(refuses([](Request& r) { r.verb = Verb::kFiles; })) << "with a job";
  const auto ends = [](Request& r) { r.verb = Verb::kEnd, Put("", r.account), Put("", r.devices); };
  EXPECT_FALSE(refuses(ends, 0));
  EXPECT_TRUE(refuses(ends, 1));
  EXPECT_TRUE(refuses([&](Request& r) { ends(r), Put("ada", r.account); }, 0)) << "of no account";
}

// What gets through has the form that is promised, whatever the bytes are.
TEST(LauncherMessages, ChangedBytesAreRefusedOrOfTheForm) {
  std::mt19937 random(28);
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = Bytes(ToStart());
    for (std::size_t n = random() % 4; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random() % (random() % 2 ? 256 : 8));
    const auto read = Decode(bytes, random() % 3);
    if (!read) continue;
    ++accepted;
    ASSERT_LE(static_cast<int>(read->verb), 6);
    ASSERT_EQ(read->account[sizeof read->account - 1], 0);
    ASSERT_EQ(read->job[sizeof read->job - 1], 0);
    ASSERT_EQ(read->devices[sizeof read->devices - 1], 0);
    ASSERT_EQ(std::string(read->job).find('/'), std::string::npos);
    ASSERT_EQ(std::string(read->account).find('/'), std::string::npos);
  }
  EXPECT_GT(accepted, 1000);
}

TEST(LauncherMessages, DirectoriesOfEachJobAreKnown) {
  for (const char* path : {"/tmp", "/tmp/x", "/var/tmp/x", "/dev/shm"})
    EXPECT_TRUE(IsOfEachJob(path)) << path;
  for (const char* path : {"/", "/tmpfs", "/var", "/home/tmp", "/run/lock"})
    EXPECT_FALSE(IsOfEachJob(path)) << path;
}

Result<std::string> Read(const Reply& reply) {
  return ReadReply({reinterpret_cast<const char*>(&reply), sizeof reply});
}

TEST(LauncherMessages, RepliesSayWhatIsWrong) {
  Reply reply;
  Put("/var/lib/muster-jobs", reply.text);
  EXPECT_EQ(*Read(reply), "/var/lib/muster-jobs");
  reply.code = static_cast<std::uint8_t>(StatusCode::kNotFound);
  Put("this node has no account 'ada'", reply.text);
  EXPECT_EQ(Read(reply).status(), NotFound("muster-launcher: this node has no account 'ada'"));
  std::memset(reply.text, 'x', sizeof reply.text);
  EXPECT_EQ(Read(reply).status().message(), "muster-launcher: " + std::string(252, 'x'));
  reply.code = 200;
  EXPECT_EQ(Read(reply).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(ReadReply("short").ok());
}

}  // namespace
}  // namespace muster::launcher

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
  Request read;
  return Decode(Bytes(request), descriptors, &read);
}

TEST(LauncherMessages, AWholeRequestIsAccepted) {
  Request read;
  ASSERT_TRUE(Decode(Bytes(ToStart()), 1, &read));
  EXPECT_EQ(Bytes(read), Bytes(ToStart()));
  EXPECT_TRUE(Accepts(Request{}, 0));
}

TEST(LauncherMessages, EverythingElseIsRefused) {
  Request read;
  EXPECT_FALSE(Decode(Bytes(ToStart()).substr(1), 1, &read));
  EXPECT_FALSE(Decode(Bytes(ToStart()) + "x", 1, &read));
  EXPECT_FALSE(Decode(Bytes(ToStart()), 0, &read));
  EXPECT_FALSE(Decode(Bytes(ToStart()), 2, &read));
  const auto refuses = [](auto change, std::size_t descriptors = 1) {
    Request request = ToStart();
    change(request);
    return !Accepts(request, descriptors);
  };
  EXPECT_TRUE(refuses([](Request& r) { r.version = 2; }));
  EXPECT_TRUE(refuses([](Request& r) { r.verb = Verb{7}; }));
  EXPECT_TRUE(refuses([](Request& r) { r.reserved[1] = 1; }));
  EXPECT_TRUE(refuses([](Request& r) { r.pid = 7; }));
  EXPECT_TRUE(refuses([](Request& r) { std::memset(r.account, 'a', sizeof r.account); }));
  EXPECT_TRUE(refuses([](Request& r) { r.account[20] = 'x'; })) << "behind the end of the text";
  for (const char* name : {"", "a/b", "-r", ".x", "a b", "a:b"})
    EXPECT_TRUE(refuses([&](Request& r) { Put(name, r.account); })) << name;
  for (const char* job : {"", ".", "..", "a/b", "../x"})
    EXPECT_TRUE(refuses([&](Request& r) { Put(job, r.job); })) << job;
  for (const char* path : {"", "run/lock", "/run/../etc", "/run/.."})
    EXPECT_TRUE(refuses([&](Request& r) { Put(path, r.devices); })) << path;
  EXPECT_TRUE(refuses([](Request& r) { r.verb = Verb::kFiles; })) << "with a job";
  EXPECT_TRUE(refuses([](Request& r) { r.verb = Verb::kEnd, Put("", r.devices), r.pid = 1; }, 0));
  EXPECT_FALSE(refuses([](Request& r) { r.verb = Verb::kEnd, Put("", r.devices), r.pid = 2; }, 0));
}

// What gets through has the form that is promised, whatever the bytes are.
TEST(LauncherMessages, ChangedBytesAreRefusedOrOfTheForm) {
  std::mt19937 random(28);
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = Bytes(ToStart());
    for (std::size_t n = random() % 4; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random() % (random() % 2 ? 256 : 8));
    Request read;
    if (!Decode(bytes, random() % 3, &read)) continue;
    ++accepted;
    ASSERT_LE(static_cast<int>(read.verb), 6);
    ASSERT_EQ(read.account[sizeof read.account - 1], 0);
    ASSERT_EQ(read.job[sizeof read.job - 1], 0);
    ASSERT_EQ(read.devices[sizeof read.devices - 1], 0);
    ASSERT_EQ(std::string(read.job).find('/'), std::string::npos);
    ASSERT_EQ(std::string(read.account).find('/'), std::string::npos);
  }
  EXPECT_GT(accepted, 1000);
}

TEST(LauncherMessages, DirectoriesOfEachJobAreKnown) {
  for (const char* path : {"/tmp", "/tmp/x", "/var/tmp/x", "/dev/shm"})
    EXPECT_TRUE(IsOfEachJob(path)) << path;
  for (const char* path : {"/", "/tmpfs", "/var", "/home/tmp", "/run/lock"})
    EXPECT_FALSE(IsOfEachJob(path)) << path;
}

TEST(LauncherMessages, RepliesSayWhatIsWrong) {
  Reply reply{.reason = Reason::kNoAccount};
  EXPECT_EQ(StatusOf(reply, "ada").message(), "this node has no account 'ada'");
  reply = {.reason = Reason::kFailed, .error = EPERM};
  Put("setsid", reply.detail);
  EXPECT_NE(StatusOf(reply, "ada").message().find("setsid"), std::string::npos);
  Reply read;
  EXPECT_FALSE(DecodeReply("short", &read));
  reply.reason = Reason{200};
  EXPECT_FALSE(DecodeReply({reinterpret_cast<const char*>(&reply), sizeof reply}, &read));
}

}  // namespace
}  // namespace muster::launcher

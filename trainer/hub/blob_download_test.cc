#include "trainer/hub/blob_download.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>

#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "trainer/hub/hub_errors.h"

namespace muster {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Sends a few bytes of the file and ends the connection, each time.
class DripClient : public HttpClient {
 public:
  explicit DripClient(std::size_t bytes) : bytes_(bytes) {}
  Result<HttpClientResponse> Send(const HttpClientRequest& request, const HttpSink& sink) override {
    ++sent_;
    const HttpClientResponse response{.code = request.offset > 0 ? 206 : 200,
                                      .headers = {{"retry-after", "0"}}};
    MUSTER_RETURN_IF_ERROR(sink(response, std::string(bytes_, 'x')));
    return response;
  }
  int sent() const { return sent_; }

 private:
  const std::size_t bytes_;
  int sent_ = 0;
};

class BlobDownloadTest : public testing::Test {
 protected:
  Status Download(HttpClient& client, std::int64_t size) {
    return DownloadBlob(
        client, {.url = "http://hub.example/x", .what = "org/name: x", .etag = "e", .size = size},
        place_,
        {.on_bytes = [](std::int64_t) {},
         .on_note = [this](const std::string& note) { notes_ += note + "\n"; }});
  }

  const TempDirForTest dir_;
  BlobPlace place_ = {.blob = dir_ / "e", .lock = dir_ / "e.lock"};
  std::string notes_;
};

TEST_F(BlobDownloadTest, AByteEachTimeIsNoProgress) {
  DripClient client(1);
  const Status status = Download(client, 1 << 20);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(client.sent(), kMaxAttempts);
}

TEST_F(BlobDownloadTest, WhatGetsOnMayBreakOffMoreOftenThanThat) {
  constexpr int kParts = 2 * kMaxAttempts;
  DripClient client(100'000);
  const Status status = Download(client, kParts * 100'000);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(client.sent(), kParts);
  EXPECT_TRUE(std::filesystem::exists(place_.blob));
}

TEST_F(BlobDownloadTest, ALockThatNobodyGetsOnWithIsWaitedForWithinADeadline) {
  const UniqueFd held(::open(place_.lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  place_.lock_timeout = Duration::zero();
  DripClient client(100'000);
  const Status status = Download(client, 100'000);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("another process holds " + place_.lock));
  EXPECT_THAT(notes_, HasSubstr("waiting for another process"));
  EXPECT_EQ(client.sent(), 0);
}

TEST(GrowthWatch, EndsAWaitOnlyWhereNothingHasGrown) {
  const TimePoint start = TimePoint() + seconds(1000);
  GrowthWatch watch(seconds(60), start);
  EXPECT_FALSE(watch.HasStalled(-1, start + seconds(59))) << "the file is not there yet";
  EXPECT_FALSE(watch.HasStalled(10, start + seconds(60)));
  EXPECT_FALSE(watch.HasStalled(10, start + seconds(119)));
  EXPECT_FALSE(watch.HasStalled(20, start + seconds(121)));
  EXPECT_FALSE(watch.HasStalled(0, start + seconds(130))) << "begun anew";
  EXPECT_FALSE(watch.HasStalled(0, start + seconds(189)));
  EXPECT_TRUE(watch.HasStalled(0, start + seconds(190)));
}

}  // namespace
}  // namespace muster

#include "coordinator/page/page_routes.h"

#include <gmock/gmock.h>

#include "common/base/json.h"
#include "common/telemetry/testing/http_server_testing.h"
#include "coordinator/control/testing/control_harness.h"
#include "coordinator/page/page_assets.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kKey[] = "00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee";

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

class PageRoutesTest : public HttpServerTest {
 protected:
  PageRoutesTest() {
    const auto find = [this](const std::string& job, const JobFilter& filter, auto found) {
      const JobId archived = cluster_.controller().FindArchived(job, filter);
      if (archived.empty()) return found(cluster_.controller().FindJob(job, filter));
      found(ArchivedJobView(cluster_.StoredArchive(archived)).view());
    };
    PageSources sources{
        .controller = cluster_.controller(),
        .cluster = "lab",
        .find_job = [find](const std::string& job, auto found) { find(job, {}, std::move(found)); },
        .after_durable = [](auto done) { done(OkStatus()); },
        .now =
            [this] {
              return Now{SystemClock().Now(), cluster_.now().unix_ms};
            }};
    feeds_ = std::make_unique<PageFeeds>(loop_, std::move(sources));
    AddPageRoutes(*server_,
                  {.key = kKey,
                   .controller = cluster_.controller(),
                   .find_job = find,
                   .feeds = *feeds_,
                   .read_log = [this](const LogLocation& location, int rank, std::int64_t offset,
                                      const std::function<void(Result<LogBytes>)>& done) {
                     asked_ = location.node.value + " " + std::to_string(rank) + " " +
                              std::to_string(location.generation) + " " + std::to_string(offset);
                     done(log_);
                   }});
  }
  ~PageRoutesTest() override {
    OnLoop([this] { feeds_.reset(); });
    StopLoop();
  }

  std::string Get(const std::string& path, const std::string& key = kKey) const {
    return Ask(Request("GET " + path, key.empty() ? "" : "Authorization: Bearer " + key + "\r\n"));
  }
  Reader Listen(const std::string& query) {
    Reader reader{Connect(), {}};
    Send(reader.fd, "GET /api/v1/events" + query + " HTTP/1.1\r\nHost: localhost\r\n" +
                        "Authorization: Bearer " + kKey + "\r\n\r\n");
    reader.Until("\r\n\r\n");
    return reader;
  }

  RunningJob cluster_;
  std::unique_ptr<PageFeeds> feeds_;
  std::string asked_;
  Result<LogBytes> log_ = LogBytes{.data = "hello\n", .next_offset = 6, .at_end = true};
};

TEST_F(PageRoutesTest, PagesAreForAnybodyAndMayLoadNothingFromElsewhere) {
  for (const char* path : {"/", "/jobs/tiny", "/jobs/a%2Fb"}) {
    const std::string page = Get(path, "");
    EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n")) << path;
    EXPECT_THAT(page,
                AllOf(HasSubstr("Content-Type: text/html"),
                      HasSubstr("Content-Security-Policy: default-src 'none'; "),
                      HasSubstr("frame-ancestors 'none'"), HasSubstr("script-src 'self'"),
                      HasSubstr("X-Content-Type-Options: nosniff\r\n"),
                      HasSubstr("Referrer-Policy: no-referrer\r\n"), Not(HasSubstr("unsafe-"))))
        << path;
    EXPECT_THAT(page, Not(HasSubstr("tiny\""))) << "nothing of the cluster is in a page";
  }
}

TEST_F(PageRoutesTest, EveryAssetThatAPageNamesIsServed) {
  for (const PageAsset& asset : PageAssets()) {
    const std::string text(asset.text);
    EXPECT_EQ(CountOf(text, "http:"), CountOf(text, "http://www.w3.org/2000/svg"))
        << asset.name << " names another server";
    EXPECT_EQ(text.find("https:"), std::string::npos) << asset.name;
    EXPECT_EQ(text.find("innerHTML"), std::string::npos) << asset.name;
    for (std::size_t at = text.find("/assets/"); at != std::string::npos;
         at = text.find("/assets/", at + 1)) {
      const std::string path = text.substr(at, text.find_first_of("\"'", at) - at);
      EXPECT_THAT(Get(path, ""), StartsWith("HTTP/1.1 200 OK\r\n")) << path;
    }
  }
  EXPECT_THAT(Get("/assets/page.js", ""), HasSubstr("Content-Type: text/javascript"));
  EXPECT_THAT(Get("/assets/nothing.js", ""), StartsWith("HTTP/1.1 404 "));
}

TEST_F(PageRoutesTest, WithoutTheKeyNothingIsSent) {
  for (const char* path : {"/api/v1/events", "/api/v1/events?job=tiny", "/api/v1/log?job=tiny",
                           "/api/v1/log?job=tiny&key=00c0ffee"}) {
    for (const std::string& key : {std::string(), std::string(64, '0'), std::string(kKey, 63)}) {
      const std::string answer = Get(path, key);
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 403 ")) << path;
      EXPECT_THAT(answer, HasSubstr("'muster page'")) << path;
    }
  }
  EXPECT_EQ(asked_, "");
  OnLoop([this] { EXPECT_EQ(feeds_->viewers(), 0u); });
}

TEST_F(PageRoutesTest, NothingIsTakenFromABrowser) {
  for (const char* path : {"/", "/api/v1/events", "/api/v1/log?job=tiny"})
    for (const char* method : {"POST ", "PUT ", "DELETE ", "PATCH ", "OPTIONS "})
      EXPECT_THAT(Ask(Request(std::string(method) + path)), StartsWith("HTTP/1.1 405 "))
          << method << path;
}

TEST_F(PageRoutesTest, StreamsAreOfTheClusterOrOfAJobByNameOrId) {
  Reader overview = Listen("");
  EXPECT_THAT(overview.Until("\n\n"),
              AllOf(StartsWith("event: parts\ndata: {"), HasSubstr("\"node/n1\"")));
  for (const std::string& name : {cluster_.id.value, std::string("tiny"), std::string("t%69ny")}) {
    Reader job = Listen("?job=" + name);
    EXPECT_THAT(job.Until("\n\n"), HasSubstr("\"attempt/1\"")) << name;
  }
  EXPECT_THAT(Get("/api/v1/events?job=nobody"),
              AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("no job 'nobody'")));
  EXPECT_THAT(Get("/api/v1/events?job="), StartsWith("HTTP/1.1 400 "));
}

TEST_F(PageRoutesTest, AnArchivedJobHasAPageAndItsLog) {
  OnLoop([this] { cluster_.ArchiveIt(); });
  ASSERT_EQ(cluster_.controller().FindArchived(cluster_.id.value), cluster_.id);
  Reader job = Listen("?job=" + cluster_.id.value);
  EXPECT_THAT(job.Until("\n\n"), AllOf(HasSubstr("\"attempt/1\""), HasSubstr("\"succeeded\""),
                                       HasSubstr("\"rank/1\""), HasSubstr("name: tiny")));
  Get("/api/v1/log?job=" + cluster_.id.value + "&rank=1");
  EXPECT_EQ(asked_, "n2 1 1 -65536");
}

TEST_F(PageRoutesTest, AViewerThatLeavesIsForgotten) {
  {
    Reader reader = Listen("");
    reader.Until("\n\n");
    OnLoop([this] { EXPECT_EQ(feeds_->viewers(), 1u); });
  }
  EXPECT_TRUE(Eventually([this] {
    std::size_t viewers = 1;
    OnLoop([&] { viewers = feeds_->viewers(); });
    return viewers == 0;
  }));
}

TEST_F(PageRoutesTest, ALogIsRequestedAsInTheQuery) {
  const std::string answer = Get("/api/v1/log?job=tiny&rank=1&generation=1&offset=12");
  EXPECT_EQ(asked_, "n2 1 1 12");
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json\r\n"));
  const auto json = nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n")));
  EXPECT_EQ(json["text"], "hello\n");
  Get("/api/v1/log?job=tiny");
  EXPECT_EQ(asked_, "n1 0 1 -65536") << "its end, of rank 0 of the newest attempt";
}

TEST_F(PageRoutesTest, ALogThatCannotBeReadReportsWhy) {
  EXPECT_THAT(Get("/api/v1/log?job=nobody"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/api/v1/log?job=tiny&rank=9"),
              AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("its ranks are 0 to 1")));
  for (const char* bad : {"rank=x", "rank=-1", "rank=99999999999", "offset=1.5", "generation="})
    EXPECT_THAT(Get(std::string("/api/v1/log?job=tiny&") + bad), StartsWith("HTTP/1.1 400 "))
        << bad;
  OnLoop([this] { log_ = DeadlineExceeded("the node did not answer within 5 s"); });
  EXPECT_THAT(Get("/api/v1/log?job=tiny"),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("did not answer")));
}

}  // namespace
}  // namespace muster

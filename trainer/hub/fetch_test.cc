#include "trainer/hub/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <utility>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

GetEnv Env(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

TEST(HubEndpoint, IsTheEnvironments) {
  EXPECT_EQ(HubEndpoint(Env({{"HF_ENDPOINT", "http://mirror:8080/"}})), "http://mirror:8080");
  EXPECT_TRUE(HubEndpoint(Env({})).starts_with("https://"));
}

TEST(HubToken, ComesFromTheNearestPlace) {
  const TempDirForTest dir;
  const std::string file = dir.Write("mine", "hf_file\n");
  dir.Write("token", "hf_stored\n");
  const std::map<std::string, std::string> home = {{"HF_HOME", dir.path()}};
  std::map<std::string, std::string> both = home;
  both["HF_TOKEN"] = " hf_env ";
  EXPECT_EQ(*HubToken(file, Env(both)), "hf_file");
  EXPECT_EQ(*HubToken("", Env(both)), "hf_env");
  EXPECT_EQ(*HubToken("", Env(home)), "hf_stored");
  EXPECT_EQ(*HubToken("", Env({{"HF_HOME", dir / "nowhere"}})), "");
  EXPECT_FALSE(HubToken(dir / "nowhere", Env({})).ok());
  EXPECT_FALSE(HubToken("", Env({{"HF_TOKEN", "a\nX-Header: b"}})).ok());
}

TEST(EncodedPath, LeavesNothingThatMeansSomething) {
  EXPECT_EQ(EncodedPath("a b/c?d#e%f", true), "a%20b/c%3Fd%23e%25f");
  EXPECT_EQ(EncodedPath("refs/pr/1", false), "refs%2Fpr%2F1");
}

// A Hub of one model, and what it does otherwise than the real one.
struct HubManners {
  std::string listing;
  bool breaks_listing = false;  // once, in its middle
  bool says_sizes = true;       // of files, in its answers to HEAD
  std::string etag = {};        // of every file; empty: one that says nothing of contents
};

// In this process.
class LocalHub : public HttpClient {
 public:
  explicit LocalHub(HubManners manners) : manners_(std::move(manners)) {}
  Result<HttpClientResponse> Send(const HttpClientRequest& request, const HttpSink& sink) override {
    HttpClientResponse response{.code = 200};
    if (request.url.find("/api/models/") != std::string::npos) {
      const std::string_view listing = manners_.listing;
      if (std::exchange(manners_.breaks_listing, false)) {
        MUSTER_RETURN_IF_ERROR(sink(response, listing.substr(0, listing.size() / 2)));
        return Unavailable("the connection broke off");
      }
      MUSTER_RETURN_IF_ERROR(sink(response, listing));
      return response;
    }
    const std::string body = "body of " + request.url.substr(request.url.rfind('/') + 1);
    const std::string size = std::to_string(body.size());
    response.headers["etag"] = '"' + (manners_.etag.empty() ? "e" + size : manners_.etag) + '"';
    if (manners_.says_sizes) response.headers["content-length"] = size;
    if (!request.head) MUSTER_RETURN_IF_ERROR(sink(response, body));
    return response;
  }

 private:
  HubManners manners_;
};

class FetchModelTest : public testing::Test {
 protected:
  Result<std::string> Fetch(const std::string& listing, std::vector<std::string> include = {}) {
    return FetchFrom({.listing = listing}, std::move(include));
  }
  Result<std::string> FetchFrom(const HubManners& manners, std::vector<std::string> include = {}) {
    return FetchModel({.id = {"org/name", "main"},
                       .endpoint = "http://hub.example",
                       .cache = cache_.path(),
                       .include = std::move(include)},
                      {.on_plan = [](std::size_t, std::int64_t) {},
                       .on_bytes = [this](std::int64_t bytes) { bytes_ += bytes; },
                       .on_file = [](const std::string&) {},
                       .on_note = [](const std::string&) {}},
                      [manners] { return std::make_unique<LocalHub>(manners); });
  }
  static std::string Listing(const std::string& files) {
    return "{\"sha\": \"" + std::string(40, 'b') + "\", \"siblings\": [" + files + "]}";
  }

  const TempDirForTest cache_;
  std::int64_t bytes_ = 0;
};

TEST_F(FetchModelTest, MakesASnapshotThatResolves) {
  const auto snapshot = Fetch(Listing(R"({"rfilename": "config.json"}, {"rfilename": "x.gguf"},
                                             {"rfilename": "model.safetensors"})"));
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  EXPECT_EQ(*ResolveModel("org/name", Env({{"HF_HUB_CACHE", cache_.path()}})), *snapshot);
  EXPECT_TRUE(fs::is_symlink(*snapshot + "/config.json"));
  EXPECT_EQ(fs::read_symlink(*snapshot + "/config.json").string().substr(0, 12), "../../blobs/");
  EXPECT_EQ(fs::file_size(*snapshot + "/config.json"), 19u);
  EXPECT_FALSE(fs::exists(*snapshot + "/x.gguf"));
  EXPECT_EQ(bytes_, 19 + 25);
}

TEST_F(FetchModelTest, LinksFilesOfFoldersOneStepFurther) {
  const auto snapshot = Fetch(Listing(R"({"rfilename": "a/b/c.json"})"), {"a/*"});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  EXPECT_TRUE(fs::is_regular_file(*snapshot + "/a/b/c.json")) << "the link leads to the blob";
}

TEST_F(FetchModelTest, TakesNoHalfOfAListingThatBrokeOff) {
  const auto snapshot = FetchFrom(
      {.listing = Listing(R"({"rfilename": "config.json"})"), .breaks_listing = true}, {"*"});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  EXPECT_TRUE(fs::exists(*snapshot + "/config.json"));
}

// `git hash-object` of "body of config.json", and of another file.
const char kGitOfConfig[] = "43cf684b28c9ffeb0a3e9534cdbdbf9cbce38771";
const char kGitOfWeights[] = "c22e23015b37759e880c54ff388997e454ce5aad";

TEST_F(FetchModelTest, ChecksContentsByTheListsSizeWhereTheHeadTellsNone) {
  HubManners manners{.listing = Listing(R"({"rfilename": "config.json", "size": 19})"),
                     .says_sizes = false,
                     .etag = kGitOfConfig};
  const auto snapshot = FetchFrom(manners, {"*"});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  EXPECT_EQ(fs::file_size(*snapshot + "/config.json"), 19u);
  fs::remove_all(cache_ / "models--org--name");
  manners.etag = kGitOfWeights;
  EXPECT_THAT(FetchFrom(manners, {"*"}).status().message(),
              HasSubstr("not what the Hub announced"));
}

TEST_F(FetchModelTest, TakesContentsWhoseSizeNobodyTells) {
  const auto snapshot = FetchFrom({.listing = Listing(R"({"rfilename": "config.json"})"),
                                   .says_sizes = false,
                                   .etag = kGitOfConfig},
                                  {"*"});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  EXPECT_EQ(fs::file_size(*snapshot + "/config.json"), 19u);
}

TEST_F(FetchModelTest, TrustsNoNameThatLeadsElsewhere) {
  EXPECT_THAT(Fetch(Listing(R"({"rfilename": "../../x.json"})")).status().message(),
              HasSubstr("leads out of the model"));
  EXPECT_THAT(Fetch(R"({"sha": "../x", "siblings": []})").status().message(),
              HasSubstr("names no commit"));
  EXPECT_THAT(Fetch("<html>").status().message(), HasSubstr("no list of files"));
}

TEST_F(FetchModelTest, SaysThatNothingIsWanted) {
  const std::string listing = Listing(R"({"rfilename": "a.bin"})");
  EXPECT_THAT(Fetch(listing).status().message(), HasSubstr("none of its 1 files"));
  EXPECT_THAT(Fetch(listing, {"*.txt"}).status().message(), HasSubstr("named by --include"));
}

TEST_F(FetchModelTest, LetsAModelsNameStandForAWholeSnapshotOnly) {
  const std::string listing =
      Listing(R"({"rfilename": "config.json"}, {"rfilename": "model.safetensors"})");
  const std::string ref = cache_ / "models--org--name/refs/main";
  const auto env = Env({{"HF_HUB_CACHE", cache_.path()}});
  const auto part = Fetch(listing, {"*.json"});
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_FALSE(fs::exists(ref));
  EXPECT_THAT(ResolveModel("org/name", env).status().message(), HasSubstr("fetch it with"));
  ASSERT_TRUE(Fetch(listing, {"*.safetensors"}).ok());
  EXPECT_TRUE(fs::exists(ref)) << "both parts are there";
  EXPECT_TRUE(ResolveModel("org/name", env).ok());
}

TEST_F(FetchModelTest, RefusesWeightsThatNothingLoads) {
  const std::string listing =
      Listing(R"({"rfilename": "config.json"}, {"rfilename": "pytorch_model.bin"})");
  EXPECT_THAT(Fetch(listing).status().message(), HasSubstr("has no safetensors"));
  EXPECT_EQ(bytes_, 0) << "before anything comes";
  const auto named = Fetch(listing, {"*.bin"});
  ASSERT_TRUE(named.ok()) << named.status().ToString();
  EXPECT_TRUE(fs::exists(*named + "/pytorch_model.bin"));
}

}  // namespace
}  // namespace muster

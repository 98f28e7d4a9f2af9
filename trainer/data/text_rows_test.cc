#include "trainer/data/text_rows.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/files.h"
#include "common/base/host_peak.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "trainer/data/cache_folder.h"
#include "trainer/data/cache_key.h"
#include "trainer/data/content_hashes.h"
#include "trainer/data/testing/text_files_testing.h"
#include "trainer/data/text_dataset.h"
#include "trainer/data/verified_mark.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class TextRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_.Write("tokenizer.json", ByteTokenizerJson());
    path_ = dir_.Write("rows.jsonl", NumberedRows(0, 600));
    options_.model_dir = dir_.path();
    run_.cache_dir = dir_ / "cache";
    run_.on_rows = [this](std::int64_t) { ++tokenized_; };
  }

  // And whether they were tokenized for it.
  std::pair<TextRows, bool> Load() {
    const int before = tokenized_;
    auto rows = LoadTextRows({path_}, ByteTokenizer(), options_, run_);
    EXPECT_TRUE(rows.ok()) << rows.status().ToString();
    return {*std::move(rows), tokenized_ > before};
  }
  // The path of the entry of these rows and options, whether or not it is there.
  std::string EntryPath() const {
    const auto files = HashFiles({path_}, {}, {});
    EXPECT_TRUE(files.ok()) << files.status().ToString();
    return run_.cache_dir + "/" + CacheEntryName(*CacheKey(*files, options_));
  }
  // Whole ones and what is left of others, without what lies beside them.
  std::vector<std::string> Entries() const {
    std::vector<std::string> found;
    for (const auto& file : fs::directory_iterator(run_.cache_dir)) {
      const std::string path = file.path().string();
      if (path.ends_with(".tokens") || path.find(".tokens.tmp.") != std::string::npos)
        found.push_back(path);
    }
    return found;
  }

  TempDirForTest dir_;
  std::string path_;
  TextOptions options_{.vocab_size = 256};
  TextRowsRun run_;
  std::atomic<int> tokenized_ = 0;
};

TEST_F(TextRowsTest, TokenizesOnce) {
  const auto [first, made] = Load();
  EXPECT_TRUE(made);
  const auto [second, made_again] = Load();
  EXPECT_FALSE(made_again);
  EXPECT_EQ(RowsOf(*second.dataset), RowsOf(*first.dataset));
  EXPECT_THAT(second.notes, IsEmpty());
  EXPECT_EQ(Entries().size(), 1u);
}

TEST_F(TextRowsTest, WithoutACacheRowsAreTheSame) {
  const auto [cached, made] = Load();
  run_.cache_dir.clear();
  const auto [in_memory, made_again] = Load();
  EXPECT_TRUE(made_again);
  EXPECT_EQ(in_memory.dataset->Fingerprint(), cached.dataset->Fingerprint());
  EXPECT_EQ(RowsOf(*in_memory.dataset), RowsOf(*cached.dataset));
}

TEST_F(TextRowsTest, WhateverChangesIdsMakesAnotherEntry) {
  Load();
  const auto changes = [this](const auto& change) {
    change();
    return Load().second;
  };
  EXPECT_TRUE(changes([this] { options_.max_seq_len = 30; }));
  EXPECT_TRUE(changes([this] { options_.split_text = true; }));
  EXPECT_TRUE(changes([this] { options_.train_on_all = true; }));
  EXPECT_TRUE(changes([this] { options_.eos_token_id = 3; }));
  EXPECT_TRUE(changes([this] { dir_.Write("chat_template.jinja", "x"); }));
  EXPECT_TRUE(changes([this] { dir_.Write("rows.jsonl", NumberedRows(1, 600)); }));
  EXPECT_FALSE(changes([] {}));
  EXPECT_FALSE(changes([this] {
    fs::last_write_time(path_, fs::file_time_type::clock::now() + std::chrono::hours(1));
  })) << "the same bytes, written again";
}

TEST_F(TextRowsTest, FilesThatWereMovedOrRenamedFindTheirEntry) {
  const auto [first, made] = Load();
  fs::create_directory(dir_ / "moved");
  path_ = dir_ / "moved/renamed.jsonl";
  fs::rename(dir_ / "rows.jsonl", path_);
  const auto [second, made_again] = Load();
  EXPECT_FALSE(made_again);
  EXPECT_EQ(RowsOf(*second.dataset), RowsOf(*first.dataset));
  EXPECT_THAT(second.dataset->Describe(std::vector<std::int64_t>{6}),
              HasSubstr("line 7 of renamed.jsonl"));
}

TEST_F(TextRowsTest, OldEntriesOfTheSameFilesAreRemoved) {
  path_ = dir_.Write("others.jsonl", NumberedRows(5, 10));
  Load();
  const std::string other = Entries().front();
  path_ = dir_ / "rows.jsonl";
  const std::string left = TemporaryEntryName(other);
  ASSERT_TRUE(WriteFileAtomically(left, "").ok()) << "of a writer that was killed";
  for (int length = 20; length < 28; ++length) {
    options_.max_seq_len = length;
    Load();
    // As if each had been a day ago.
    for (const std::string& entry : Entries()) {
      struct stat info = {};
      ASSERT_EQ(::stat(entry.c_str(), &info), 0);
      info.st_atim.tv_sec -= 24 * 3600;
      const timespec times[2] = {info.st_atim, info.st_mtim};
      ASSERT_EQ(::utimensat(AT_FDCWD, entry.c_str(), times, 0), 0);
    }
  }
  EXPECT_EQ(Entries().size(), 4u + 1u);
  EXPECT_TRUE(fs::exists(other));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(Load().second) << "the newest is there";
}

TEST_F(TextRowsTest, AnEntryThatIsBeingReadIsNotRemoved) {
  const auto [rows, made] = Load();
  const std::string entry = Entries().front();
  const UniqueFd fd(::open(entry.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_NE(::flock(fd.get(), LOCK_EX | LOCK_NB), 0) << "as who removes it would";
}

TEST_F(TextRowsTest, ADamagedEntryIsMadeAnewAndToldOnce) {
  const auto [first, made] = Load();
  const std::string entry = Entries().front();
  fs::resize_file(entry, fs::file_size(entry) - 5);
  const auto [second, made_again] = Load();
  EXPECT_TRUE(made_again);
  EXPECT_THAT(second.notes, ElementsAre(HasSubstr("is damaged")));
  EXPECT_EQ(second.dataset->Fingerprint(), first.dataset->Fingerprint());
  EXPECT_FALSE(Load().second);
}

TEST_F(TextRowsTest, ACacheThatCannotBeWrittenIsDoneWithout) {
  dir_.Write("file", "x");
  run_.cache_dir = dir_ / "file/cache";
  const auto [rows, made] = Load();
  EXPECT_TRUE(made);
  EXPECT_EQ(rows.dataset->size(), 600);
  EXPECT_THAT(rows.notes, ElementsAre(HasSubstr("the tokens are kept in memory instead of in " +
                                                run_.cache_dir)));
}

// A limit on the size of files stands in for a disk that is full after some bytes.
TEST_F(TextRowsTest, AFullDiskIsDoneWithoutAndKeepsNothing) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto [rows, made] = Load();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(rows.dataset->size(), 600);
  EXPECT_THAT(rows.notes, ElementsAre(HasSubstr("kept in memory instead")));
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(TextRowsTest, BadRowsAreErrorsAndLeaveNoEntry) {
  dir_.Write("rows.jsonl", NumberedRows(0, 300) + "{broken\n");
  const auto rows = LoadTextRows({path_}, ByteTokenizer(), options_, run_);
  EXPECT_THAT(rows.status().message(), HasSubstr("rows.jsonl:301: is not valid JSON"));
  EXPECT_THAT(Entries(), IsEmpty());
  dir_.Write("rows.jsonl", "\n");
  EXPECT_THAT(LoadTextRows({path_}, ByteTokenizer(), options_, run_).status().message(),
              HasSubstr("has no rows"));
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(TextRowsTest, OfRanksThatStartTogetherOneTokenizes) {
  std::vector<std::thread> ranks;
  std::array<std::uint64_t, 4> fingerprints{};
  std::atomic<int> chunks = 0;
  run_.on_rows = [&](std::int64_t) { ++chunks; };
  for (std::uint64_t& fingerprint : fingerprints)
    ranks.emplace_back([&] {
      const auto rows = LoadTextRows({path_}, ByteTokenizer(), options_, run_);
      fingerprint = rows.ok() ? rows->dataset->Fingerprint() : 0;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(chunks, 3) << "600 rows, 256 to a chunk, by one of them";
  EXPECT_NE(fingerprints[0], 0u);
  for (const std::uint64_t fingerprint : fingerprints) EXPECT_EQ(fingerprint, fingerprints[0]);
}

TEST_F(TextRowsTest, AWriterThatStandsStillIsNotWaitedForForEver) {
  fs::create_directory(run_.cache_dir);
  std::ofstream(EntryPath() + ".lock") << "";
  const UniqueFd other(::open((EntryPath() + ".lock").c_str(), O_RDWR));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  run_.timeout = std::chrono::milliseconds(60);
  EXPECT_TRUE(Load().second);
  EXPECT_FALSE(Load().second) << "and the entry is there";
}

// Their rows were kept under the key of the bytes before, for readers that have those.
TEST_F(TextRowsTest, FilesThatChangeWhileTheyAreTokenizedAreReadAgain) {
  const std::string before = EntryPath();
  run_.on_rows = [&](std::int64_t) {
    if (++tokenized_ == 1) std::ofstream(path_, std::ios::app) << NumberedRows(600, 1);
  };
  const auto [rows, made] = Load();
  EXPECT_EQ(rows.dataset->size(), 601);
  EXPECT_THAT(Entries(), ElementsAre(EntryPath()));
  EXPECT_NE(EntryPath(), before);
  EXPECT_FALSE(Load().second);
}

TEST_F(TextRowsTest, FilesThatGoOnChangingAreNoBadInputAndLeaveNothing) {
  run_.on_rows = [&](std::int64_t) {
    std::ofstream(path_, std::ios::app) << NumberedRows(++tokenized_, 1);
  };
  const auto rows = LoadTextRows({path_}, ByteTokenizer(), options_, run_);
  EXPECT_EQ(rows.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(rows.status().message(), HasSubstr("rows.jsonl has changed while"));
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(TextRowsTest, TimesThatAreSetWhileRowsAreTokenizedChangeNothing) {
  run_.on_rows = [&](std::int64_t) {
    ++tokenized_;
    fs::last_write_time(path_, fs::file_time_type::clock::now() - std::chrono::hours(1));
  };
  Load();
  EXPECT_EQ(tokenized_, 3) << "once: 600 rows, 256 to a chunk";
  EXPECT_THAT(Entries(), ElementsAre(EntryPath()));
}

// Every rank of a node read all of it at every start.
TEST_F(TextRowsTest, AnEntryIsReadThroughOnceByAHostUntilItIsWrittenTo) {
  const auto [first, made] = Load();
  const auto rows = RowsOf(*first.dataset);
  const std::string entry = Entries().front();
  const auto damage = [&](std::streamoff at) {
    std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('#');
  };
  const auto written = fs::last_write_time(entry);
  damage(200);
  fs::last_write_time(entry, written);
  EXPECT_FALSE(Load().second) << "as it was as far as a look shows";
  damage(204);
  const auto [again, made_again] = Load();
  EXPECT_TRUE(made_again) << "it was written to";
  EXPECT_EQ(RowsOf(*again.dataset), rows);
  // The host has not checked it, or not since it booted.
  const std::string mark = VerifiedMark(entry).path();
  ASSERT_TRUE(fs::exists(mark));
  const auto rewritten = fs::last_write_time(entry);
  damage(200);
  fs::last_write_time(entry, rewritten);
  std::ofstream(mark) << "another boot";
  EXPECT_TRUE(Load().second);
}

// Ranks that wait have to meet others that wait for them, whether or not the writer gets on.
TEST_F(TextRowsTest, WhoWaitsIsAskedAllTheTimeAndThatTimeCountsForNothing) {
  fs::create_directory(run_.cache_dir);
  UniqueFd other(::open((EntryPath() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  run_.timeout = std::chrono::seconds(1);
  int asked = 0;
  run_.on_wait = [&] {
    // The first time takes longer than the timeout.
    const Deadline end = Deadline::After(asked == 0 ? run_.timeout * 5 / 4 : Duration::zero());
    while (!end.Expired()) std::this_thread::yield();
    if (++asked < 3) return;
    EXPECT_EQ(tokenized_, 0);
    other.reset();
  };
  EXPECT_TRUE(Load().second);
  EXPECT_GE(asked, 3);
}

// Twelve million tokens would be 48 MB; what a rank keeps are some bytes per row and buffers.
TEST_F(TextRowsTest, MemoryDoesNotGrowWithTheTokens) {
  {
    std::string row = "{\"text\": \"";
    for (int i = 0; i < 480; ++i) row += "word ";
    std::ofstream file(path_);
    for (int i = 0; i < 5000; ++i) file << row << "\"}\n";
  }
  options_.max_seq_len = 2400;
  const HostPeak peak;
  if (!peak.of_stage()) GTEST_SKIP() << "the kernel does not let the mark be set back";
  const auto [rows, made] = Load();
  ASSERT_EQ(rows.dataset->stats().tokens, 12'000'000);
  EXPECT_LT(peak.bytes() - peak.begin_bytes(), 30'000'000);
}

}  // namespace
}  // namespace muster

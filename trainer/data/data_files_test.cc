#include "trainer/data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kKey[] = "train.data.train";

TEST(DataFiles, AFolderGivesItsFilesByName) {
  const TempDirForTest dir;
  for (const char* name : {"b.jsonl", "a.json", "c.jsonl.gz", "README.md", ".hidden.jsonl"})
    dir.Write(name, "x");
  std::filesystem::create_directory(dir / "within.jsonl");
  const auto files = FindDataFiles({dir.path()}, kKey);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  EXPECT_EQ(files->kind, DataKind::kText);
  EXPECT_THAT(files->paths, ElementsAre(dir / "a.json", dir / "b.jsonl", dir / "c.jsonl.gz"));
}

TEST(DataFiles, AListKeepsItsOrder) {
  const TempDirForTest dir;
  const std::string late = dir.Write("z.npy", "x");
  const std::string early = dir.Write("a.bin", "x");
  const auto files = FindDataFiles({late, early}, kKey);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  EXPECT_EQ(files->kind, DataKind::kTokens);
  EXPECT_THAT(files->paths, ElementsAre(late, early));
}

TEST(DataFiles, WhatIsNotReadIsRefusedByName) {
  const TempDirForTest dir;
  const auto refusal = [](const std::vector<std::string>& named) {
    return FindDataFiles(named, kKey).status();
  };
  EXPECT_EQ(refusal({dir / "no.jsonl"}).code(), StatusCode::kNotFound);
  EXPECT_THAT(refusal({dir / "no.jsonl"}).message(), HasSubstr(dir / "no.jsonl"));
  EXPECT_THAT(refusal({dir.path()}).message(), HasSubstr("has no file that ends in .jsonl"));
  const std::string parquet = dir.Write("rows.parquet", "x");
  EXPECT_THAT(refusal({parquet}).message(), HasSubstr("read_parquet"));
  EXPECT_THAT(refusal({dir.path()}).message(), HasSubstr(parquet)) << "a folder of nothing else";
  const std::string text = dir.Write("a.jsonl", "x");
  const std::string ids = dir.Write("b.bin", "x");
  EXPECT_THAT(refusal({text, ids}).message(), HasSubstr("names text and token ids"));
  EXPECT_THAT(refusal({dir.Write("a.csv", "x")}).message(), HasSubstr("a.csv has another ending"));
}

}  // namespace
}  // namespace muster

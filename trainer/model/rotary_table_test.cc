// The table against transformers' (testdata/rope.json, made by tests/golden/make_rope_golden.py),
// and what documents of a batch have of it.
#include "trainer/model/rotary_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "trainer/model/families/read_config.h"

namespace muster {
namespace {

using Json = nlohmann::json;

at::Tensor AsTensor(const Json& rows) {
  std::vector<at::Tensor> all;
  for (const Json& row : rows)
    all.push_back(at::tensor(row.get<std::vector<double>>(), at::kFloat));
  return at::stack(all);
}

TEST(RotaryTableGolden, IsThatOfTransformers) {
  std::ifstream file(MUSTER_TESTDATA "/rope.json");
  const Json cases = Json::parse(file);
  EXPECT_GE(cases.size(), 14u);
  for (const Json& golden : cases) {
    const std::string name = golden["name"];
    const auto config = ParseModelConfig(golden["config"].dump(), name);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    const std::int64_t length = golden["length"];
    const RotaryAngles all = RotaryTable(*config).Of(length, 0, length);
    const at::Tensor positions =
        at::tensor(golden["positions"].get<std::vector<std::int64_t>>(), at::kLong);
    for (const auto& [key, ours] : {std::pair("cos", all.cos), std::pair("sin", all.sin)}) {
      const at::Tensor theirs = AsTensor(golden[key]);
      ASSERT_EQ(ours.size(1), theirs.size(1)) << name;
      // Angles are equal; cosines are as the processor's vectors make them.
      const at::Tensor distance = (ours.index_select(0, positions) - theirs).abs().max();
      EXPECT_LE(distance.item<double>(), 3e-7) << name << " of " << length << ", " << key;
    }
  }
}

// By division it would be 0x1.0769c8p-4.
TEST(RotaryTable, Llama3HasTheFrequenciesOfTransformersToTheLastBit) {
  ModelConfig config;
  config.head_dim = 32;
  config.rope_scaling = RopeScaling{.kind = RopeKind::kLlama3,
                                    .factor = 8,
                                    .low_freq_factor = 1,
                                    .high_freq_factor = 4,
                                    .original_max_position_embeddings = 64};
  const RotaryAngles angles = RotaryTable(config).Of(4097, 4096, 1);
  EXPECT_NEAR(angles.sin[0][3].item<double>(), std::sin(4096 * 0x1.0769cap-4), 1e-6);
}

ModelConfig Dynamic() {
  ModelConfig config;
  config.head_dim = 8;
  config.max_position_embeddings = 4;
  config.rope_scaling = RopeScaling{.kind = RopeKind::kDynamic, .factor = 3};
  return config;
}

// Row by row those of each document as if it were alone.
void ExpectOfDocuments(const RotaryAngles& angles, const std::vector<std::int64_t>& lengths,
                       const std::vector<std::int64_t>& places) {
  ASSERT_TRUE(angles.by_token);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    RotaryTable alone(Dynamic());
    const RotaryAngles want = alone.Of(lengths[i], 0, places[i]);
    EXPECT_TRUE(at::equal(angles.cos.narrow(0, begin, places[i]), want.cos)) << i;
    EXPECT_TRUE(at::equal(angles.sin.narrow(0, begin, places[i]), want.sin)) << i;
    begin += places[i];
  }
  EXPECT_EQ(angles.cos.size(0), begin);
}

TEST(RotaryTableOfBatch, ADocumentHasTheAnglesOfItsOwnLength) {
  RotaryTable table(Dynamic());
  EXPECT_TRUE(table.depends_on_length());
  const BatchShape packed{.rows = 2, .length = 10, .document_begins = {0, 7, 10, 15}};
  ExpectOfDocuments(table.OfBatch(packed, {}), {7, 3, 5, 5}, {7, 3, 5, 5});
}

TEST(RotaryTableOfBatch, PaddingDoesNotMakeARowLonger) {
  RotaryTable table(Dynamic());
  ExpectOfDocuments(table.OfBatch({.rows = 3, .length = 9}, {9, 2, 6}), {9, 2, 6}, {9, 9, 9});
}

TEST(RotaryTableOfBatch, EquallyLongDocumentsShareTheirAngles) {
  RotaryTable table(Dynamic());
  const RotaryAngles angles = table.OfBatch({.rows = 3, .length = 9}, {6, 6, 6});
  EXPECT_FALSE(angles.by_token);
  EXPECT_EQ(angles.cos.size(0), 9);
  EXPECT_TRUE(at::equal(angles.sin, RotaryTable(Dynamic()).Of(6, 0, 9).sin));
  EXPECT_FALSE(table.OfBatch({.rows = 2, .length = 4}, {1, 4}).by_token) << "none is long";
}

// Further lengths than there are tables.
TEST(RotaryTable, EveryLengthHasItsAngles) {
  RotaryTable table(Dynamic());
  for (std::int64_t length = 1; length < 60; ++length) {
    EXPECT_TRUE(at::equal(table.Of(length, 2, 5).cos,
                          RotaryTable(Dynamic()).Of(length, 0, 7).cos.narrow(0, 2, 5)));
  }
}

// Also where the angles of the others depend on the length of a document.
TEST(RotaryTables, LayersWithAWindowHaveTheirOwnBaseAndNoScaling) {
  ModelConfig config = Dynamic();
  config.sliding_window = 3;
  config.attention = {.full_layers = {true, false}, .window_rope_theta = 50};
  RotaryTables tables(config);
  const LayerAngles angles =
      tables.OfBatch({.rows = 1, .length = 10, .document_begins = {0, 7}}, {});
  ExpectOfDocuments(angles.all, {7, 3}, {7, 3});
  config.rope_theta = 50;
  config.rope_scaling.reset();
  const RotaryAngles plain = RotaryTable(config).Of(10, 0, 10);
  EXPECT_FALSE(angles.windowed.by_token);
  EXPECT_TRUE(at::equal(angles.windowed.cos, plain.cos));
  EXPECT_TRUE(at::equal(angles.windowed.sin, plain.sin));
  EXPECT_TRUE(tables.OfLayer(0)->depends_on_length());
  EXPECT_FALSE(tables.OfLayer(1)->depends_on_length());
}

TEST(RotaryTables, OfOtherModelsAreOne) {
  ModelConfig config = Dynamic();
  config.sliding_window = 3;
  config.rotating_layers = {true, false};
  RotaryTables tables(config);
  EXPECT_FALSE(tables.OfBatch({.rows = 1, .length = 2}, {}).windowed.cos.defined());
  EXPECT_NE(tables.OfLayer(0), nullptr);
  EXPECT_EQ(tables.OfLayer(1), nullptr);
}

}  // namespace
}  // namespace muster

#include "trainer/verbs/inspection.h"

#include "common/base/files.h"
#include "trainer/verbs/testing/generator_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class InspectionTest : public GeneratorTest {};

TEST_F(InspectionTest, OfAModelSaysShapeAndMemory) {
  const auto json = InspectPath(dir_.path(), {});
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ((*json)["kind"], "model");
  EXPECT_EQ((*json)["architecture"], "LlamaForCausalLM");
  EXPECT_EQ((*json)["shape"]["kv_heads"], 2);
  EXPECT_EQ((*json)["tokenizer"]["vocab_size"], kByteVocabSize);
  EXPECT_EQ((*json)["weights"]["elements"], (*json)["parameters"]);
  EXPECT_EQ((*json)["memory"]["weights_float32"], (*json)["weights"]["bytes"]);
  // Two blocks of two heads of 8: key and value of 1024 positions, two bytes each.
  EXPECT_EQ((*json)["memory"]["kv_cache_bfloat16_per_1024_tokens"], 2 * 2 * 2 * 8 * 1024 * 2);
  EXPECT_FALSE(json->contains("tensors"));
  EXPECT_EQ((*InspectPath(dir_.path(), {.tensors = true}))["tensors"].size(),
            (*json)["weights"]["tensors"]);
}

TEST_F(InspectionTest, OfAModelSaysWhatIsWrongWithIt) {
  std::string config = *ReadFile(dir_ / "config.json");
  config.replace(config.find("\"intermediate_size\": 48"), 23, "\"intermediate_size\": 50");
  dir_.Write("config.json", config);
  EXPECT_THAT(InspectPath(dir_.path(), {}).status().message(), HasSubstr("mlp.gate_proj.weight"));
}

TEST_F(InspectionTest, OfAFileListsItsTensors) {
  const auto json = InspectPath(dir_ / "model.safetensors", {});
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ((*json)["kind"], "safetensors");
  EXPECT_EQ((*json)["metadata"]["format"], "pt");
  // Nine of each of two blocks, embedding, final norm and head.
  EXPECT_EQ((*json)["tensors"].size(), 2u * 9 + 3);
  const std::string text = InspectionText(*json);
  EXPECT_THAT(text, HasSubstr("kind safetensors\n"));
  EXPECT_THAT(text, HasSubstr("  model.norm.weight  F32  [32]\n"));
}

TEST_F(InspectionTest, NamesWhatIsNotThere) {
  EXPECT_THAT(InspectPath(dir_ / "nothing", {}).status().message(), HasSubstr("no such file"));
}

}  // namespace
}  // namespace muster

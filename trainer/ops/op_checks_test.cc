#include "trainer/ops/op_checks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace muster {
namespace {

using testing::HasSubstr;

const OpChecks kChecks(at::kCPU);

// What the exception says; empty where there is none.
std::string Refusal(const std::function<void()>& check) {
  try {
    check();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

at::Tensor Zeros(at::IntArrayRef shape, at::ScalarType type = at::kBFloat16) {
  return at::zeros(shape, type);
}

TEST(OpChecks, PassWhatTheContractSays) {
  const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 6};
  const BatchShape shape{.rows = 2, .length = 3};
  const at::Tensor x = Zeros({6, 5}), weight = Zeros({5}), scale = Zeros({6}, at::kFloat);
  const at::Tensor qkv = Zeros({6, 48}), out = Zeros({6, 24}), lse = Zeros({2, 4, 3}, at::kFloat);
  const at::Tensor angles = Zeros({3, 3}, at::kFloat);
  EXPECT_EQ(Refusal([&] {
              kChecks.AddNorm(x, {}, weight, x, x, scale);
              kChecks.AddNorm(x, x, weight, x, x, scale);
              kChecks.RecomputeRmsNorm(x, weight, scale, x);
              kChecks.NormBackward(x, x, weight, scale, x, Zeros({5}, at::kFloat));
              kChecks.ApplyRope(qkv, angles, angles, shape, heads);
              kChecks.Attention(qkv, shape, heads, out, lse);
              kChecks.AttentionBackward(qkv, out, lse, out, shape, heads, qkv);
              kChecks.SwiGlu(Zeros({6, 10}), x);
              kChecks.SwiGluBackward(Zeros({6, 10}), x, x);
              kChecks.Dropout(x, 0.5, x);
              kChecks.CrossEntropy(x, Zeros({6}, at::kLong), Zeros({1}, at::kDouble));
              kChecks.EmbeddingBackward(x, Zeros({6}, at::kLong), Zeros({9, 5}, at::kFloat));
            }),
            "");
}

TEST(OpChecks, NameTheTensorAndWhatIsWrong) {
  const at::Tensor x = Zeros({6, 5}), weight = Zeros({5}), scale = Zeros({6}, at::kFloat);
  EXPECT_THAT(Refusal([&] { kChecks.AddNorm(x, {}, Zeros({4}), x, x, scale); }),
              HasSubstr("the norm's weight has shape [4], not [5]"));
  EXPECT_THAT(Refusal([&] { kChecks.AddNorm(x, {}, weight, x, x, Zeros({6})); }),
              HasSubstr("the norm's scale has elements of type BFloat16, not Float"));
  EXPECT_THAT(Refusal([&] { kChecks.RecomputeRmsNorm(x, weight, scale, {}); }),
              HasSubstr("the norm's output is missing"));
  EXPECT_THAT(Refusal([&] {
                kChecks.RecomputeRmsNorm(Zeros({5, 6}).t(), weight, scale, x);
              }),
              HasSubstr("the sum is not contiguous"));
  EXPECT_THAT(Refusal([&] {
                kChecks.SwiGlu(Zeros({6, 9}), x);
              }),
              HasSubstr("gate_up has shape [6, 9], not [6, 10]"));
  EXPECT_THAT(
      Refusal([&] { kChecks.CrossEntropy(x, Zeros({6}, at::kInt), Zeros({1}, at::kDouble)); }),
      HasSubstr("the array of labels has elements of type Int, not Long"));
  EXPECT_THAT(Refusal([&] { kChecks.Sum(Zeros({1}, at::kFloat), "the loss"); }),
              HasSubstr("the loss is not an fp64 number"));
}

TEST(OpChecks, RefuseDocumentsThatDoNotCoverTheRows) {
  const auto refusal = [](std::vector<std::int64_t> begins) {
    return Refusal(
        [&] { CheckDocuments({.rows = 2, .length = 5, .document_begins = std::move(begins)}); });
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({0, 5}), "");
  EXPECT_EQ(refusal({0, 1, 4, 5, 9}), "");
  EXPECT_THAT(refusal({0, 3}), HasSubstr("no document begins with row 1, at token 5"));
  EXPECT_THAT(refusal({1, 5}), HasSubstr("no document begins with row 0, at token 0"));
  EXPECT_THAT(refusal({0, 5, 5}), HasSubstr("a document begins at token 5, and the next one not"));
  EXPECT_THAT(refusal({0, 6, 5}), HasSubstr("a document begins at token 6, and the next one not"));
  EXPECT_THAT(refusal({0, 5, 10}), HasSubstr("documents begin at tokens 0 to 10 of 10"));
}

TEST(OpChecks, RefuseWindowsAndNormsThatCannotBe) {
  AttentionHeads heads{.heads = 2, .kv_heads = 1, .head_dim = 4};
  const at::Tensor qkv = Zeros({3, 16}), out = Zeros({3, 8}), lse = Zeros({1, 2, 3}, at::kFloat);
  const at::Tensor weight = Zeros({4}), scale = Zeros({3, 3}, at::kFloat), other = Zeros({3, 16});
  heads.window = -1;
  EXPECT_THAT(Refusal([&] { kChecks.Attention(qkv, {.rows = 1, .length = 3}, heads, out, lse); }),
              HasSubstr("a window of -1 tokens"));
  EXPECT_EQ(Refusal([&] { kChecks.QkNorm(qkv, weight, weight, heads, other, scale); }), "");
  EXPECT_THAT(Refusal([&] { kChecks.QkNorm(qkv, weight, weight, heads, qkv, scale); }),
              HasSubstr("the normed qkv lies over qkv"));
  EXPECT_THAT(Refusal([&] { kChecks.QkNorm(qkv, weight, Zeros({3}), heads, other, scale); }),
              HasSubstr("the key norm's weight has shape [3], not [4]"));
  EXPECT_EQ(
      Refusal([&] { kChecks.QkNormBackward(qkv, weight, weight, scale, heads, other, {}, {}); }),
      "");
  EXPECT_THAT(Refusal([&] {
                kChecks.QkNormBackward(qkv, weight, weight, scale, heads, other, Zeros({5}), {});
              }),
              HasSubstr("the gradient of the query norm's weight has shape [5], not [4]"));
}

TEST(OpChecks, RefuseDropoutThatCannotBe) {
  const at::Tensor x = Zeros({6, 5});
  EXPECT_THAT(Refusal([&] {
                kChecks.Dropout(x, 0.1, Zeros({6, 4}));
              }),
              HasSubstr("the output of dropout has shape [6, 4], not [6, 5]"));
  EXPECT_THAT(Refusal([&] {
                kChecks.Dropout(Zeros({6, 5}).t(), 0.1, Zeros({5, 6}));
              }),
              HasSubstr("the input of dropout is not contiguous"));
  EXPECT_THAT(Refusal([&] { kChecks.Dropout(x, 1, x); }),
              HasSubstr("dropout with the probability 1"));
}

TEST(OpChecks, RefuseNf4WithoutItsArrays) {
  const std::uint8_t codes[4] = {};
  const float numbers[256] = {};
  Nf4Source source{.count = 7};
  EXPECT_THAT(Refusal([&] { kChecks.DequantizeNf4(source, Zeros({7})); }), HasSubstr("no codes"));
  source.codes = codes;
  source.absmax_codes = codes;
  source.nested_absmax = numbers;
  EXPECT_THAT(Refusal([&] { kChecks.DequantizeNf4(source, Zeros({7})); }),
              HasSubstr("no largest magnitudes of its blocks"));
  source.nested_code = numbers;
  EXPECT_EQ(Refusal([&] { kChecks.DequantizeNf4(source, Zeros({7})); }), "");
  EXPECT_THAT(Refusal([&] {
                kChecks.DequantizeNf4(source, Zeros({2, 3}));
              }),
              HasSubstr("has 6 elements, not 7"));
}

TEST(OpChecks, RefuseAnotherDevicesTensors) {
  const OpChecks of_a_gpu(at::kCUDA);
  EXPECT_THAT(Refusal([&] { of_a_gpu.Sum(Zeros({1}, at::kDouble), "the loss"); }),
              HasSubstr("the loss is on cpu"));
  EXPECT_THAT(Refusal([&] {
                of_a_gpu.SwiGlu(Zeros({6, 10}), Zeros({6, 5}));
              }),
              HasSubstr("gate_up is on cpu"));
}

TEST(OpChecks, RefuseHeadsWithoutHalves) {
  const AttentionHeads heads{.heads = 2, .kv_heads = 1, .head_dim = 5};
  EXPECT_THAT(Refusal([&] {
                kChecks.ApplyRope(Zeros({3, 20}), Zeros({3, 2}, at::kFloat),
                                  Zeros({3, 2}, at::kFloat), {.rows = 1, .length = 3}, heads);
              }),
              HasSubstr("heads of 5 elements have no halves"));
}

}  // namespace
}  // namespace muster

#include "trainer/ops/array_checks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/ops/attention.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/dropout.h"
#include "trainer/ops/embedding.h"
#include "trainer/ops/nf4.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/qk_norm.h"
#include "trainer/ops/rope.h"
#include "trainer/ops/swiglu.h"

namespace muster {
namespace {

using testing::HasSubstr;

const ArrayChecks kChecks(at::kCPU);

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

TEST(ArrayChecks, PassWhatTheContractSays) {
  const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 6};
  const BatchShape shape{.rows = 2, .length = 3};
  const at::Tensor x = Zeros({6, 5}), weight = Zeros({5}), scale = Zeros({6}, at::kFloat);
  const at::Tensor qkv = Zeros({6, 48}), out = Zeros({6, 24}), lse = Zeros({2, 4, 3}, at::kFloat);
  const at::Tensor angles = Zeros({3, 3}, at::kFloat);
  EXPECT_EQ(
      Refusal([&] {
        op::AddNorm{x, {}, weight, 1e-5, x, x, scale}.Check(kChecks);
        op::AddNorm{x, x, weight, 1e-5, x, x, scale}.Check(kChecks);
        op::RecomputeRmsNorm{x, weight, scale, x}.Check(kChecks);
        op::NormBackward{x, x, weight, scale, x, {Zeros({5}, at::kFloat), false}}.Check(kChecks);
        op::ApplyRope{qkv, angles, angles, shape, heads}.Check(kChecks);
        op::Attention{qkv, shape, heads, out, lse}.Check(kChecks);
        op::AttentionBackward{qkv, out, lse, out, shape, heads, qkv}.Check(kChecks);
        op::SwiGlu{Zeros({6, 10}), x}.Check(kChecks);
        op::SwiGluBackward{Zeros({6, 10}), x, x}.Check(kChecks);
        op::Dropout{x, {}, 0.5, x}.Check(kChecks);
        op::CrossEntropy{x, Zeros({6}, at::kLong), 1, Zeros({1}, at::kDouble)}.Check(kChecks);
        op::EmbeddingBackward{x, Zeros({6}, at::kLong), {Zeros({9, 5}, at::kFloat), false}}.Check(
            kChecks);
      }),
      "");
}

TEST(ArrayChecks, NameTheTensorAndWhatIsWrong) {
  const at::Tensor x = Zeros({6, 5}), weight = Zeros({5}), scale = Zeros({6}, at::kFloat);
  EXPECT_THAT(Refusal([&] { op::AddNorm{x, {}, Zeros({4}), 1e-5, x, x, scale}.Check(kChecks); }),
              HasSubstr("the norm's weight has shape [4], not [5]"));
  EXPECT_THAT(Refusal([&] { op::AddNorm{x, {}, weight, 1e-5, x, x, Zeros({6})}.Check(kChecks); }),
              HasSubstr("the norm's scale has elements of type bf16, not fp32"));
  EXPECT_THAT(Refusal([&] {
                op::RecomputeRmsNorm{x, weight, scale, {}}.Check(kChecks);
              }),
              HasSubstr("the norm's output is missing"));
  EXPECT_THAT(Refusal([&] {
                op::RecomputeRmsNorm{Zeros({5, 6}).t(), weight, scale, x}.Check(kChecks);
              }),
              HasSubstr("the sum is not contiguous"));
  EXPECT_THAT(Refusal([&] {
                op::SwiGlu{Zeros({6, 9}), x}.Check(kChecks);
              }),
              HasSubstr("gate_up has shape [6, 9], not [6, 10]"));
  EXPECT_THAT(
      Refusal([&] {
        op::CrossEntropy{x, Zeros({6}, at::kFloat), 1, Zeros({1}, at::kDouble)}.Check(kChecks);
      }),
      HasSubstr("the array of labels has elements of type fp32, not i64"));
  EXPECT_THAT(Refusal([&] { kChecks.Sum(Zeros({1}, at::kFloat), "the loss"); }),
              HasSubstr("the loss is not an fp64 number"));
}

TEST(ArrayChecks, RefuseDocumentsThatDoNotCoverTheRows) {
  const auto refusal = [](std::vector<std::int64_t> begins) {
    return Refusal(
        [&] { kChecks.Documents({.rows = 2, .length = 5, .document_begins = std::move(begins)}); });
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

TEST(ArrayChecks, RefuseWindowsAndNormsThatCannotBe) {
  AttentionHeads heads{.heads = 2, .kv_heads = 1, .head_dim = 4};
  const at::Tensor qkv = Zeros({3, 16}), out = Zeros({3, 8}), lse = Zeros({1, 2, 3}, at::kFloat);
  const at::Tensor weight = Zeros({4}), scale = Zeros({3, 3}, at::kFloat), other = Zeros({3, 16});
  heads.window = -1;
  EXPECT_THAT(Refusal([&] {
                op::Attention{qkv, {.rows = 1, .length = 3}, heads, out, lse}.Check(kChecks);
              }),
              HasSubstr("a window of -1 tokens"));
  EXPECT_EQ(
      Refusal([&] { op::QkNorm{qkv, weight, weight, 1e-6, heads, other, scale}.Check(kChecks); }),
      "");
  EXPECT_THAT(
      Refusal([&] { op::QkNorm{qkv, weight, weight, 1e-6, heads, qkv, scale}.Check(kChecks); }),
      HasSubstr("the normed qkv lies over qkv"));
  EXPECT_THAT(Refusal([&] {
                op::QkNorm{qkv, weight, Zeros({3}), 1e-6, heads, other, scale}.Check(kChecks);
              }),
              HasSubstr("the key norm's weight has shape [3], not [4]"));
  EXPECT_EQ(Refusal([&] {
              op::QkNormBackward{qkv, weight, weight, scale, heads, other, {}, {}}.Check(kChecks);
            }),
            "");
  EXPECT_THAT(
      Refusal([&] {
        op::QkNormBackward{qkv, weight, weight, scale, heads, other, {Zeros({5}), false}, {}}.Check(
            kChecks);
      }),
      HasSubstr("the gradient of the query norm's weight has shape [5], not [4]"));
}

TEST(ArrayChecks, RefuseDropoutThatCannotBe) {
  const at::Tensor x = Zeros({6, 5});
  EXPECT_THAT(Refusal([&] {
                op::Dropout{x, {}, 0.1, Zeros({6, 4})}.Check(kChecks);
              }),
              HasSubstr("the output of dropout has shape [6, 4], not [6, 5]"));
  EXPECT_THAT(Refusal([&] {
                op::Dropout{Zeros({6, 5}).t(), {}, 0.1, Zeros({5, 6})}.Check(kChecks);
              }),
              HasSubstr("the input of dropout is not contiguous"));
  EXPECT_THAT(Refusal([&] {
                op::Dropout{x, {}, 1, x}.Check(kChecks);
              }),
              HasSubstr("dropout with the probability 1"));
}

TEST(ArrayChecks, RefuseNf4WithoutItsArrays) {
  const std::uint8_t codes[4] = {};
  const float numbers[256] = {};
  Nf4Source source{.count = 7};
  EXPECT_THAT(Refusal([&] {
                op::DequantizeNf4{source, Zeros({7})}.Check(kChecks);
              }),
              HasSubstr("no codes"));
  source.codes = codes;
  source.absmax_codes = codes;
  source.nested_absmax = numbers;
  EXPECT_THAT(Refusal([&] {
                op::DequantizeNf4{source, Zeros({7})}.Check(kChecks);
              }),
              HasSubstr("no largest magnitudes of its blocks"));
  source.nested_code = numbers;
  EXPECT_EQ(Refusal([&] { op::DequantizeNf4{source, Zeros({7})}.Check(kChecks); }), "");
  EXPECT_THAT(Refusal([&] {
                op::DequantizeNf4{source, Zeros({2, 3})}.Check(kChecks);
              }),
              HasSubstr("has 6 elements, not 7"));
}

TEST(ArrayChecks, RefuseElementsThatNoKernelHas) {
  EXPECT_THAT(Refusal([&] { (void)ConstArray(Zeros({6}, at::kInt)); }),
              HasSubstr("no kernel has elements of type Int"));
  const at::Tensor whole = Zeros({6, 5}, at::kLong);
  EXPECT_THAT(Refusal([&] {
                op::Dropout{whole, {}, 0.1, whole}.Check(kChecks);
              }),
              HasSubstr("the input of dropout has elements of type i64"));
}

TEST(ArrayChecks, RefuseAnotherDevicesTensors) {
  const ArrayChecks of_a_gpu(at::kCUDA);
  EXPECT_THAT(Refusal([&] { of_a_gpu.Sum(Zeros({1}, at::kDouble), "the loss"); }),
              HasSubstr("the loss is on cpu"));
  EXPECT_THAT(Refusal([&] {
                op::SwiGlu{Zeros({6, 10}), Zeros({6, 5})}.Check(of_a_gpu);
              }),
              HasSubstr("the gated activation is on cpu"));
}

TEST(ArrayChecks, RefuseHeadsWithoutHalves) {
  const AttentionHeads heads{.heads = 2, .kv_heads = 1, .head_dim = 5};
  EXPECT_THAT(Refusal([&] {
                op::ApplyRope{Zeros({3, 20}),
                              Zeros({3, 2}, at::kFloat),
                              Zeros({3, 2}, at::kFloat),
                              {.rows = 1, .length = 3},
                              heads}
                    .Check(kChecks);
              }),
              HasSubstr("heads of 5 elements have no halves"));
}

}  // namespace
}  // namespace muster

// Element-wise reduction of raw memory across types: the arithmetic of the collectives, without any
// transport. What decides about bits is here, so that every communicator gets the same ones.
//
// Pure functions; any thread. Every element is combined by operations of its own, so the result
// does not depend on vector width or chunk borders, only on the order of the operands. Floating
// point is added up in fp32, or in fp64 where fp64 takes part.
#pragma once

#include <cstddef>
#include <span>

#include "trainer/comm/collectives.h"

namespace muster {

struct Operand {
  const void* data = nullptr;
  ElementType type = ElementType::kFloat32;
};

struct ReduceTarget {
  void* data = nullptr;
  ElementType type = ElementType::kFloat32;
  bool accumulate = false;  // add the result to what is there
};

// target[i] = operands[0][i] op operands[1][i] op ..., from left to right. Every partial result,
// the first operand alone and the last included, is rounded to sum_type. The target may be one of
// the operands if both have elements of one size.
//
// Precondition: CheckReduceTypes (collectives.h) holds for each operand's type.
void Reduce(std::span<const Operand> operands, ElementType sum_type, ReduceOp op,
            const ReduceTarget& target, std::size_t count);

// One operand, stored as `type`.
void Convert(const Operand& from, void* to, ElementType type, std::size_t count);

// What partial sums of an all-reduce are kept in: fp32 for half precision.
ElementType PartialSumType(ElementType type);

// Up to here every rank gathers the values of all and adds them up itself, in the order of ranks:
// half the steps. Beyond, an all-reduce is a reduce-scatter and an all-gather of blocks.
bool IsSmallAllReduce(std::size_t count, ElementType type, int ranks);

// Elements of a rank's block of a large all-reduce; the last blocks may be shorter or empty.
std::size_t AllReduceBlock(std::size_t count, int ranks);

}  // namespace muster

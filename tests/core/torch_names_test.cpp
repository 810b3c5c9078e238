#include "core/torch_names.hpp"

#include <gtest/gtest.h>
#include <tenfold/dtype.hpp>

namespace tenfold::test {
namespace {

TEST(TorchNames, OfDTypesAreThoseOfTensorsAndTheOthersOfTorch) {
  for (const DType dtype : all_dtypes()) EXPECT_TRUE(is_torch_dtype(name(dtype)));
  for (const char* other :
       {"bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "int1", "int7", "qint8", "qint32",
        "quint8", "quint2x4", "quint4x2", "uint1", "uint7"}) {
    EXPECT_TRUE(is_torch_dtype(other)) << other;
  }
  for (const char* none :
       {"", "float", "int", "uint9", "torch.float32", "per_tensor_affine", "load"}) {
    EXPECT_FALSE(is_torch_dtype(none)) << none;
  }
}

TEST(TorchNames, OfQSchemesAreTheFiveOfTorch) {
  for (const char* scheme : {"per_tensor_affine", "per_tensor_symmetric", "per_channel_affine",
                             "per_channel_symmetric", "per_channel_affine_float_qparams"}) {
    EXPECT_TRUE(is_torch_qscheme(scheme)) << scheme;
  }
  for (const char* none : {"", "per_tensor", "float32", "per_row_affine"}) {
    EXPECT_FALSE(is_torch_qscheme(none)) << none;
  }
}

}  // namespace
}  // namespace tenfold::test

#include "format/rotation.h"

#include "support.h"

namespace varve::kernels::testing {
namespace {

class RotationKernel : public EveryTable {};

TEST_P(RotationKernel, EqualsFormatRotationBitForBit) {
  for (const int head_dim : format::kHeadDims) {
    const auto rotation = format::Rotation::create(head_dim, 20240817);
    ASSERT_TRUE(rotation.ok());
    for (const int n : {1, 3, 64}) {
      const auto rows = rows_like_a_cache(n, head_dim, 5);
      std::vector<float> expected = rows;
      Guarded<float> got(rows.size());
      std::copy(rows.begin(), rows.end(), got.begin());
      rotation->forward(expected.data(), n);
      kernels().rotate(got.data(), n, head_dim, rotation->signs());
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(expected[i], got[i]) << head_dim << " element " << i;
      rotation->inverse(expected.data(), n);
      kernels().unrotate(got.data(), n, head_dim, rotation->signs());
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(expected[i], got[i]) << head_dim << " element " << i;
      EXPECT_TRUE(got.intact());
    }
  }
}

TEST_P(RotationKernel, UndoesItselfAndKeepsDotProducts) {
  for (const int head_dim : format::kHeadDims) {
    const auto rotation = format::Rotation::create(head_dim, 9);
    ASSERT_TRUE(rotation.ok());
    const auto rows = gaussian(static_cast<size_t>(2 * head_dim), 6);
    std::vector<float> turned = rows;
    kernels().rotate(turned.data(), 2, head_dim, rotation->signs());
    EXPECT_NEAR(dot(turned.data(), turned.data() + head_dim, head_dim),
                dot(rows.data(), rows.data() + head_dim, head_dim), 1e-4);
    kernels().unrotate(turned.data(), 2, head_dim, rotation->signs());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(turned[i], rows[i], 1e-5);
  }
}

VARVE_EVERY_TABLE(RotationKernel);

}  // namespace
}  // namespace varve::kernels::testing

define internal void @row_sum.body(ptr noalias nocapture %buffer0, ptr noalias nocapture %buffer1, i64 %first, i64 %last) nounwind {
entry:
  br label %loop0
loop0:
  %i0_loop0 = phi i64 [ %first, %entry ], [ %next1, %loop1.end ]
  %v0 = icmp slt i64 %i0_loop0, %last
  br i1 %v0, label %loop0.body, label %loop0.end
loop0.body:
  %v1 = mul i64 %i0_loop0, 48
  br label %loop1
loop1:
  %i1_loop1 = phi i64 [ 0, %loop0.body ], [ %next0, %loop1 ]
  %sum0 = phi <16 x float> [ splat (float 0x0000000000000000), %loop0.body ], [ %v4, %loop1 ]
  %v2 = mul i64 %i1_loop1, 16
  %v3 = add i64 %v1, %v2
  %at0 = getelementptr float, ptr %buffer1, i64 %v3
  %load0 = load <16 x float>, ptr %at0, align 4
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %load0, <16 x float> %load0, <16 x float> %sum0)
  %next0 = add nuw nsw i64 %i1_loop1, 1
  %v5 = icmp ult i64 %next0, 3
  br i1 %v5, label %loop1, label %loop1.end
loop1.end:
  %v6 = shufflevector <16 x float> %v4, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v7 = shufflevector <16 x float> %v4, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v8 = fadd <8 x float> %v6, %v7
  %v9 = shufflevector <8 x float> %v8, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v10 = shufflevector <8 x float> %v8, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v11 = fadd <4 x float> %v9, %v10
  %v12 = shufflevector <4 x float> %v11, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v13 = shufflevector <4 x float> %v11, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v14 = fadd <2 x float> %v12, %v13
  %v15 = extractelement <2 x float> %v14, i64 0
  %v16 = extractelement <2 x float> %v14, i64 1
  %v17 = fadd float %v15, %v16
  %at1 = getelementptr float, ptr %buffer0, i64 %i0_loop0
  store float %v17, ptr %at1, align 4
  %next1 = add nuw nsw i64 %i0_loop0, 1
  br label %loop0
loop0.end:
  ret void
}

define void @row_sum(ptr %args, i64 %first, i64 %last) nounwind noinline optnone {
  %position0 = getelementptr ptr, ptr %args, i64 0
  %buffer0 = load ptr, ptr %position0, align 8
  %position1 = getelementptr ptr, ptr %args, i64 1
  %buffer1 = load ptr, ptr %position1, align 8
  call void @row_sum.body(ptr %buffer0, ptr %buffer1, i64 %first, i64 %last)
  ret void
}

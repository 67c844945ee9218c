package client_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/millrace/millrace/client"
)

// A picture is uploaded, its variants are waited for, and one is downloaded.
func ExampleImages() {
	url, stop, err := serveImages(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	ctx := context.Background()
	c, err := client.New(client.Config{BaseURL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	images := c.Images()
	receipt, err := images.Upload(ctx, client.ImageUpload{Body: bytes.NewReader(redPNG(80, 40)),
		Name: "red.png", Sizes: []int{20, 400}})
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := images.Wait(ctx, receipt.FileID)
	fmt.Println(file.Status, file.Type, err)
	for _, v := range file.Variants {
		fmt.Printf("%d: %d×%d\n", v.Size, v.Width, v.Height)
	}
	picture, err := images.Variant(ctx, file.ID, 20)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer picture.Close()
	// Output:
	// ready image/png <nil>
	// 20: 20×10
	// 400: 80×40
}

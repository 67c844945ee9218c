package demo

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
)

// comparedPoints are the points at which colours are compared, in hundredths of the sides. They are
// away from edges, which become smooth in a smaller picture.
var comparedPoints = [][2]int{{5, 5}, {50, 50}, {95, 5}, {5, 95}, {95, 95}, {50, 92}}

// colorTolerance is the largest difference of colours that are taken as equal, of 255: JPEG changes
// colours slightly.
const colorTolerance = 16

// colorDistance is the largest difference of two colours, in red, green, blue or opacity, from 0 to
// 255.
func colorDistance(a, b color.Color) int {
	ar, ag, ab, aa := a.RGBA()
	br, bg, bb, ba := b.RGBA()
	difference := 0
	for _, pair := range [][2]uint32{{ar, br}, {ag, bg}, {ab, bb}, {aa, ba}} {
		diff := int(pair[0]>>8) - int(pair[1]>>8)
		difference = max(difference, diff, -diff)
	}
	return difference
}

// drawPictures draws and encodes what the demo uploads: a photo as JPEG, a logo as PNG, and a text
// with the name of a JPEG. Only the logo is deleted in the end.
func drawPictures() ([]*uploadedPicture, error) {
	sunset, badge := drawSunset(1600, 1000), drawBadge(500, 300)
	var photo, logo bytes.Buffer
	if err := jpeg.Encode(&photo, sunset, &jpeg.Options{Quality: 90}); err != nil {
		return nil, err
	}
	if err := png.Encode(&logo, badge); err != nil {
		return nil, err
	}
	return []*uploadedPicture{
		{name: "sunset.jpg", data: photo.Bytes(), drawn: sunset},
		{name: "badge.png", data: logo.Bytes(), drawn: badge, remove: true},
		{name: "broken.jpg", data: []byte("this is no picture at all\n")},
	}, nil
}

// drawSunset draws a gradient with dark strokes on it, like words on a photo.
func drawSunset(width, height int) image.Image {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.SetRGBA(x, y, color.RGBA{uint8(255 - 55*x/width), uint8(200 - 150*y/height),
				uint8(60 + 150*x/width), 255})
		}
	}
	drawWord(m, image.Rect(width/5, height*3/5, width*4/5, height*7/10),
		color.RGBA{40, 20, 60, 255})
	return m
}

// drawBadge draws a disc with light strokes on it. Its corners are transparent, and its rim is half
// transparent.
func drawBadge(width, height int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			dx, dy := 200*x/width-100, 200*y/height-100 // hundredths of the radius
			switch distance := dx*dx + dy*dy; {
			case distance < 70*70:
				m.SetNRGBA(x, y, color.NRGBA{20, 120, 200, 255})
			case distance < 98*98:
				m.SetNRGBA(x, y, color.NRGBA{20, 120, 200, 128})
			}
		}
	}
	drawWord(m, image.Rect(width/4, height*3/10, width*3/4, height*4/10),
		color.NRGBA{255, 255, 255, 255})
	return m
}

// drawWord draws strokes of different heights, which look like a word from a distance.
func drawWord(m interface{ Set(x, y int, c color.Color) }, in image.Rectangle, ink color.Color) {
	const strokes = 24
	wide := in.Dx() / strokes
	for n := range strokes {
		for y := in.Min.Y + in.Dy()*(n*n%5)/10; y < in.Max.Y; y++ {
			for x := range wide / 2 {
				m.Set(in.Min.X+n*wide+x, y, ink)
			}
		}
	}
}
